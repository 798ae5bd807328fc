export default async function Docs({ params }: PageProps<"/docs/[...slug]">) {
  return <p>{(await params).slug.join(", ")}</p>;
}
