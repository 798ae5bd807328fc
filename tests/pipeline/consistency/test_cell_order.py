"""The order of cells: by block and stratum, however the store collates the names of strata."""

from array import array

from storage.verdicts.packed_cells import NO_CELLS, Columns, in_order


def columns(*rows: tuple[int, int, int], values: list[float]) -> Columns:
    """Returns cells of (block, stratum, units of treatment), all else alike."""
    block, stratum, n1 = (array("q", column) for column in zip(*rows, strict=True))
    return {**NO_CELLS, "block": block, "stratum": stratum, "n1": n1, "y1": array("d", values)}


def test_cells_of_a_block_are_in_the_order_of_their_strata() -> None:
    read = columns((300, 1, 11), (300, 0, 10), (600, 2, 22), (600, 0, 20), values=[1, 2, 3, 4])
    assert in_order(read) == columns(
        (300, 0, 10), (300, 1, 11), (600, 0, 20), (600, 2, 22), values=[2, 1, 4, 3]
    )
