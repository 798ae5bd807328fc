export default function About() {
  return <p>Books.</p>;
}
