"""What the compiled libraries need of the machine, and that the wheel's tag says so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from tests.conftest import MARK, TESTS, Site
from tests.wheel.conftest import Built, run

SYSTEM = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"} | {
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}
TORCHS = {"libtorch.so", "libtorch_cpu.so", "libtorch_python.so", "libc10.so", "libgomp.so.1"}


def dynamic_tags(library: Path) -> list[tuple[str, str]]:
    with library.open("rb") as file:
        (section,) = (s for s in ELFFile(file).iter_sections() if isinstance(s, DynamicSection))
        tags = [(tag.entry.d_tag, tag) for tag in section.iter_tags()]
        return [(name, tag.needed if name == "DT_NEEDED" else "") for name, tag in tags]


def test_libraries_need_what_torch_brings_or_every_linux_has(zoo: Site) -> None:
    libraries = list(zoo.directory.rglob("*.so"))
    assert len(libraries) > 5
    for library in libraries:
        tags = dynamic_tags(library)
        assert {needed for tag, needed in tags if tag == "DT_NEEDED"} <= SYSTEM | TORCHS
        assert not [tag for tag, _ in tags if tag in ("DT_RPATH", "DT_RUNPATH")]


def test_there_is_one_openmp_runtime_in_the_process_and_it_is_torchs(zoo: Site) -> None:
    seen = zoo.play("openmp.after_a_call")
    assert (seen["served"], seen["ours"]) == (True, 1)
    (runtime,) = seen["openmp"]
    if list(Path(seen["torch"], "lib").glob("libgomp*")):
        assert runtime.startswith(seen["torch"])


def system_libgomp() -> set[str]:
    ldconfig = shutil.which("ldconfig", path=f"{os.environ['PATH']}:/sbin:/usr/sbin")
    assert ldconfig is not None
    listed = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True).stdout
    return {line.split(" => ")[1] for line in listed.splitlines() if line.strip().startswith("libgomp.so.1 ")}


def test_it_runs_where_the_system_has_no_openmp_runtime(zoo: Site) -> None:
    """In a mount namespace where the system's libgomp is an empty file. Needs the right to make one."""
    hide = "".join(f"mount --bind /dev/null {os.path.realpath(path)} && " for path in system_libgomp())
    unshare = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    allowed = subprocess.run(
        [*unshare, "sh", "-c", f"{hide}true"], capture_output=True, text=True, check=False
    )
    if allowed.returncode:
        pytest.skip("no mount namespace can be made here")
    inside = [*unshare, "sh", "-c", f'{hide}exec "$0" -c "$1"', sys.executable]
    places = [str(zoo.directory), str(TESTS / "support"), str(TESTS / "scenarios")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    hidden = subprocess.run(
        [*inside, "import ctypes; ctypes.CDLL('libgomp.so.1')"], capture_output=True, text=True, check=False
    )
    assert "OSError: " in hidden.stderr, "the system's libgomp can still be loaded"
    used = subprocess.run(
        [*inside, "import probe; probe.play('openmp', 'after_a_call')"],
        env=environment,
        input="{}",
        capture_output=True,
        text=True,
        check=False,
    )
    assert used.returncode == 0, used.stderr
    (line,) = (line for line in used.stdout.splitlines() if line.startswith(MARK))
    seen = json.loads(line.removeprefix(MARK))
    assert seen["served"]
    assert [path.startswith(seen["torch"]) for path in seen["openmp"]] == [True]


class TestTag:
    """The wheel's tag is what auditwheel finds, torch's own libraries left out."""

    def test_auditwheel_show_finds_the_same_symbols(self, built: Built) -> None:
        auditwheel = Path(sysconfig.get_path("scripts"), "auditwheel")
        # Else it counts the symbols that the system's libgomp, which is not used, needs of others.
        said = json.loads(run(auditwheel, "show", "--json", "--ldpaths", built.wheel.parent, built.wheel))
        assert said["sym_tag"] == built.wheel.stem.split("-")[-1]
        assert set(said["external_libs"]) <= TORCHS
        assert not said["unsupported_isa"]

    def test_auditwheel_gives_this_tag_where_torch_brings_its_libraries(self, built: Built) -> None:
        from auditwheel.wheel_abi import analyze_wheel_abi

        found = analyze_wheel_abi(
            None, None, built.wheel, frozenset(TORCHS), disable_isa_ext_check=False, allow_graft=False
        )
        assert found.overall_policy.name == built.wheel.stem.split("-")[-1]
