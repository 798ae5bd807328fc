export const products = Array.from({ length: 12 }, (_, index) => ({
  id: String(index + 1),
  title: `Book ${index + 1}`,
  price: 11 + index,
}));
