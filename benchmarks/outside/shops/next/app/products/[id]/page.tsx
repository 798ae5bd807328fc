import { notFound } from "next/navigation";

import { products } from "@/lib/products";

export default async function Product({ params }: PageProps<"/products/[id]">) {
  const { id } = await params;
  const product = products.find((each) => each.id === id);
  if (!product) notFound();
  return <h1>{product.title}</h1>;
}
