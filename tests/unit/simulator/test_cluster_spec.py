import math

import pytest

from rota.core.model.node import Node
from rota.core.model.units import GIB
from rota.errors import UserError
from rota.simulator.cluster_spec import parse_cluster


def shape(node: Node) -> tuple[str, int, str]:
    return node.id, len(node.gpus), node.gpus[0].type if node.gpus else ""


def test_one_kind_of_node():
    nodes = parse_cluster("3x4")
    assert [shape(node) for node in nodes] == [
        ("node-01", 4, "gpu"),
        ("node-02", 4, "gpu"),
        ("node-03", 4, "gpu"),
    ]
    assert [gpu.index for gpu in nodes[0].gpus] == [0, 1, 2, 3]
    assert nodes[0].cpus == nodes[0].memory_bytes == math.inf


def test_several_kinds_are_numbered_through():
    nodes = parse_cluster("1x2:V100, 2x8:A100")
    assert [shape(node) for node in nodes] == [
        ("node-01", 2, "V100"),
        ("node-02", 8, "A100"),
        ("node-03", 8, "A100"),
    ]


def test_ids_sort_as_strings_on_large_clusters():
    ids = [node.id for node in parse_cluster("120x1")]
    assert ids == sorted(ids)
    assert ids[0] == "node-001"


def test_everything_about_a_node():
    (node,) = parse_cluster("1x2:A100@80GiB/96cpu/1TiB")
    assert node.gpus[1].memory_bytes == 80 * GIB
    assert (node.cpus, node.memory_bytes) == (96, 1024 * GIB)


def test_labels_come_last():
    ssd, bare = parse_cluster("1x2:A100@80GiB/96cpu/1TiB/disk=ssd/room=2,1x4/rack=")[:2]
    assert ssd.labels == {("disk", "ssd"), ("room", "2")}
    assert (ssd.cpus, ssd.memory_bytes) == (96, 1024 * GIB)
    assert (bare.labels, bare.cpus) == ({("rack", "")}, math.inf)


def test_nodes_without_gpus():
    assert shape(parse_cluster("1x0/32cpu")[0]) == ("node-01", 0, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot parse ''"),
        ("4", "cannot parse '4'"),
        ("3x", "cannot parse '3x'"),
        ("-1x4", "cannot parse '-1x4'"),
        ("3x4,", "cannot parse ''"),
        ("3x4:", "cannot parse '3x4:'"),
        ("3x4:A 100", "cannot parse '3x4:A 100'"),
        ("3x1.5", "cannot parse '3x1.5'"),
        ("0x4", "0 nodes, but the number must be between 1 and 100,000"),
        ("60000x1,60000x1", "120000 nodes, but the number must be between 1 and 100,000"),
        ("1x1025", "1025 GPUs per node exceed the limit of 1,024"),
        ("1x4/disk", "cannot parse '1x4/disk'"),
        ("1x4/=ssd", "cannot parse '1x4/=ssd'"),
        ("1x4/disk=ssd/8cpu", "cannot parse '1x4/disk=ssd/8cpu'"),
        ("1x4/disk=ssd/disk=hdd", "label 'disk' is given twice"),
        ("1x4@16XB", "'16XB' is not an amount of memory like 6GiB"),
        ("1x4/1.2.3GiB", "'1.2.3GiB' is not an amount of memory like 6GiB"),
    ],
)
def test_a_bad_description_gives_an_error_and_a_hint(text: str, message: str):
    with pytest.raises(UserError) as caught:
        parse_cluster(text)
    assert caught.value.message == f"cluster '{text}': {message}"
    assert "3x4" in caught.value.hint
    assert caught.value.exit_code == 2
