"""The graphs that the route graphs' programs write: who takes them."""

import pytest
from node_apps import NEXT, NEXT_ROUTES
from programs import graph, run_node, written


@pytest.mark.requirement("deploy.payload", "graph.document")
def test_the_service_takes_the_graph_and_finds_what_a_diff_touches(service, tmp_path) -> None:
    document = graph(run_node(cwd=written(NEXT, tmp_path) / "apps" / "web"))
    answer = service.post("/v1/static-graphs", document)
    assert (answer.status_code, answer.json()["route_count"]) == (201, len(NEXT_ROUTES))
    touched = (
        ("apps/web/lib/cart/total.ts", ["/shop/api/orders", "/shop/checkout/[id]"]),
        ("packages/ui/src/base.css", ["/shop/docs/[[...slug]]"]),
        ("apps/web/middleware.ts", sorted(path for path, _ in NEXT_ROUTES)),
        ("apps/web/lib/types.ts", []),
    )
    for number, (filename, affected) in enumerate(touched):
        diff = {"files": [{"filename": filename, "status": "modified"}]}
        deploy = service.deploy(f"a{number:06x}", graph=document, diff=diff)
        assert deploy["affected_routes"] == affected
