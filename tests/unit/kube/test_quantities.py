import pytest

from rota.kube.quantities import UNITS, parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8.0),
        ("500m", 0.5),
        ("16Gi", 16 * 2.0**30),
        ("129M", 129e6),
        ("1e3", 1000.0),
        ("12E", 12e18),
        ("2Ei", 2 * 2.0**60),
        (4, 4.0),
        (None, 0.0),
        ("many", 0.0),
        ("inf", 0.0),
        ("1e400", 0.0),
        ("-5", 0.0),
    ],
)
def test_quantities(text: str | int | None, value: float) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_is_read(unit: str) -> None:
    """Nodes report their memory in Ki."""
    assert parse_quantity(f"3{unit}") == 3 * UNITS[unit]
