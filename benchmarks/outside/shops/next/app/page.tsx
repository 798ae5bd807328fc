import { headers } from "next/headers";
import Link from "next/link";

import { products } from "@/lib/products";

export default async function Home() {
  await headers();
  return (
    <ul>
      {products.map(({ id, title }) => (
        <li key={id}>
          <Link href={`/products/${id}`}>{title}</Link>
        </li>
      ))}
    </ul>
  );
}
