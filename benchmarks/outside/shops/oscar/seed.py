"""Books to sell, made by `manage.py shell`."""

from oscar.apps.catalogue.models import Category, Product, ProductClass
from oscar.apps.partner.models import Partner, StockRecord

kind = ProductClass.objects.create(name="Book", requires_shipping=False, track_stock=False)
partner = Partner.objects.create(name="warehouse")
category = Category.add_root(name="Books")
for number in range(1, 4):
    book = Product.objects.create(title=f"Book {number}", product_class=kind, upc=f"b{number}")
    book.categories.add(category)
    StockRecord.objects.create(
        product=book, partner=partner, partner_sku=f"b{number}", price=10, num_in_stock=100
    )
