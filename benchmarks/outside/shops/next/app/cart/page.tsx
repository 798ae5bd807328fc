import { cookies } from "next/headers";

export default async function Cart() {
  const cart = (await cookies()).get("cart")?.value ?? "";
  return <p>{cart.split(".").filter(Boolean).length} books</p>;
}
