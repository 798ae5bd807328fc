"""The order of cells: by block and stratum, however the store collates the names of strata."""

from array import array

from storage.verdicts.packed_cells import CellColumns, Sums


def columns(*rows: tuple[int, int, int], values: list[float]) -> CellColumns:
    """Returns cells of (block, stratum, units of treatment), all else alike."""
    block, stratum, n1 = (array("q", column) for column in zip(*rows, strict=True))
    nothing = array("q", [0] * len(rows))
    return CellColumns(
        block=block,
        stratum=stratum,
        n1=n1,
        x1=nothing,
        n0=nothing,
        x0=nothing,
        sums=Sums(y1=array("d", values), yy1=array("d"), y0=array("d"), yy0=array("d")),
    )


def test_cells_of_a_block_are_in_the_order_of_their_strata() -> None:
    read = columns((300, 1, 11), (300, 0, 10), (600, 2, 22), (600, 0, 20), values=[1, 2, 3, 4])
    assert read.in_order() == columns(
        (300, 0, 10), (300, 1, 11), (600, 0, 20), (600, 2, 22), values=[2, 1, 4, 3]
    )


def test_cells_that_are_in_order_stay_as_they_are() -> None:
    read = columns((300, 0, 10), (300, 1, 11), (600, 0, 20), values=[])
    assert read.in_order() is read
