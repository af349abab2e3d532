# Every target makes the environments it needs, under .venv-*, and uses them again the next time.
# It needs Python 3.11, make and g++, and an index to install from. For a CPU-only torch, which is all
# these targets use, set PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu

PYTHON ?= $(shell command -v python3.11 || command -v python3)

# One torch for everything that is built and run here. It goes into every pip command that installs
# something depending on torch, or pip would be free to pick another.
TORCH := torch==2.13.0

LINT_NEEDS := ruff==0.17.6 mypy==2.4.1
TEST_NEEDS := $(TORCH) transformers==5.23.0 distributed pyyaml einops==0.8.2 torchao==0.18.0 pytest pytest-xdist filelock hypothesis build uv 'setuptools>=77' \
	fastapi uvicorn pillow validate-pyproject validate-pyproject-schema-store
MODELS_NEEDS := x-transformers==2.31.10 kornia==0.9.0 diffusers==0.42.1 torch_geometric==2.8.1 sentence-transformers==6.2.0
# Without what they require: torchvision requires the torch it was built with, GPU libraries included.
MODELS_ALONE := timm==1.0.31 torchvision==0.28.0
BENCH_NEEDS := $(TORCH) transformers==5.23.0 torchao==0.18.0 build onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.31.1 openvino==2026.4.1
# What models are tried with by `make tools`, beside torch itself and TEST_NEEDS
TRIED_WITH := accelerate==1.15.0 captum==0.9.0 coverage==7.17.5 dill==0.4.1 joblib==1.6.0 lightning==2.6.6 onnx==1.23.2 onnxruntime==1.31.1 \
	onnxscript==0.7.2 peft==0.21.2 torchinfo==1.8.0
TOOLS_NEEDS := build
# Wheels for the emulated machine of `make test-arm64`: there is no other index of these for it
ARM64_NEEDS := $(TORCH) transformers==5.23.0 numpy hatchling msgspec 'auditwheel>=6.5,<7' pyelftools pytest pytest-xdist filelock hypothesis \
	build click griffelib jinja2 rich tomlkit
DOCS_NEEDS := mkdocs==1.6.1 mkdocs-material==9.8.1

PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

.PHONY: help lint test test-arm64 test-cuda newest-cell cells demo bench calls gemm chart differential fuzz truth models programs strangers tools soak reference docs clean

help:
	@echo "make lint    ruff and mypy"
	@echo "make test    the whole test suite; TESTS=tests/unit for a part of it"
	@echo "make test-arm64   a part of it on an emulated 64-bit Arm machine, which it makes in build/arm64; as root"
	@echo "make test-cuda    what is for GPUs, without one, with a torch that is built for CUDA: CUDA_PYTHON=its python"
	@echo "make newest-cell   the part that depends on versions, with the newest Python and torch of docs/support.md that are here"
	@echo "make cells   the same with each Python and torch of docs/support.md, which it writes"
	@echo "make demo    a real model: built, installed, run, and timed; build/demo.json"
	@echo "make bench   every way of starting a model, on eleven models; build/bench.json"
	@echo "make calls   what a call costs around its kernels, by time or by instructions; build/calls.json"
	@echo "make gemm    linear layers: torch's libraries, inductor's micro-GEMMs, a wheel's functions; build/gemm.json"
	@echo "make chart   the chart of benchmarks/README.md, from build/bench.json; docs/cold-start.svg"
	@echo "make differential    our guards against dynamo's; build/differential.json"
	@echo "make fuzz    what comes from outside, changed at random: no traceback, no crash"
	@echo "make truth   what a wheel answers after its sources, its process or its inputs have changed; build/truth.json"
	@echo "make models  models of transformers and other libraries, tiny, beside eager code; build/models.json"
	@echo "make programs   whole programs around models, from the wheel, eagerly and with torch.compile; build/programs.json"
	@echo "make strangers   packages that nobody here wrote, each as a project of its own, and programs like them; build/strangers.json"
	@echo "make tools   some ninety tools, from pickle to FSDP, on a wheel's models and on eager ones; build/tools.json"
	@echo "make soak    what a process grows by in half a million calls, and a busy server, beside eager code; build/soak.json"
	@echo "make reference  what is made from the code: a JSON schema, docs/configuration.md, docs/inputs.md"
	@echo "make docs    the documentation as a site; build/site/index.html"
	@echo "make clean   removes what these wrote, environments included"

lint: .venv-lint/.ready
	.venv-lint/bin/ruff check .
	.venv-lint/bin/ruff format --check .
	.venv-lint/bin/mypy

TESTS ?= tests
# Processes that run tests, a file at a time each. A capture keeps about one core busy.
WORKERS ?= 2
PYTEST = -m pytest --numprocesses=$(WORKERS) --dist=loadfile $(TESTS)
test: .venv-test/.ready
	.venv-test/bin/python $(PYTEST)

# Debian packages: debootstrap qemu-user-static. Six GB, and Debian packages and wheels from their indexes, to make the machine.
ARM64 ?= build/arm64
ARM64_TESTS ?= tests/arm64 tests/unit/test_variants.py tests/runtime_unit/test_signals.py tests/capture/test_threads.py \
	tests/truth/test_truth.py::test_the_wheel_answers_as_eager_code_does_whatever_has_changed \
	tests/truth/test_truth.py::test_what_was_not_changed_is_served
test-arm64: .venv-test/.ready
	tests/arm64/machine.sh make $(ARM64) $(ARM64_NEEDS)
	tests/arm64/machine.sh run $(ARM64) python3 -m pytest -p no:cacheprovider \
		--basetemp=/tmp/tests --numprocesses=$(WORKERS) --dist=loadfile --durations=0 -rs $(ARM64_TESTS)
	ARM64_WHEEL="$$(echo $(ARM64)/tmp/tests/islet/dist/*.whl)" .venv-test/bin/python -m pytest -rs tests/arm64/test_elsewhere.py

# No GPU is needed, and none is used. An environment with the packages of TEST_NEEDS, but torch from
# https://download.pytorch.org/whl/cu130: make test-cuda CUDA_PYTHON=/path/to/bin/python
CUDA_PYTHON ?= .venv-test/bin/python
CUDA_TESTS ?= tests/backends/cuda tests/unit/test_devices.py
test-cuda: .venv-test/.ready
	@"$(CUDA_PYTHON)" tests/backends/cuda/has_cuda.py
	"$(CUDA_PYTHON)" -m pytest --numprocesses=$(WORKERS) --dist=loadfile $(CUDA_TESTS)

# What fails first where a Python or a torch differs: in the newest cell of docs/support.md whose Python is here, in an
# environment of its own that is removed afterwards.
NEWEST_NEEDS := $(TORCH) torchao==0.18.0 pytest pytest-xdist filelock hypothesis
NEWEST_TESTS ?= tests/torch_internals tests/runtime_unit tests/unit/test_torch_versions.py tests/unit/test_machine.py \
	tests/unit/test_wheel.py tests/capture/test_native_guards.py tests/capture/test_direct_calls.py
newest-cell: .venv-test/.ready
	.venv-test/bin/python tests/cells/run.py --newest --needs "$(NEWEST_NEEDS)" --workers $(WORKERS) --tests "$(NEWEST_TESTS)"

# The whole suite with other versions, each in an environment of its own that is removed afterwards. A torch is several GB
# on an index without a CPU-only one. A part: make cells CELLS="--cells 3.12+2.13.0"; a Python that is not on the path:
# PYTHON_3_14=/opt/python3.14/bin/python3.14 make cells
cells:
	"$(PYTHON)" tests/cells/run.py --needs "$(TEST_NEEDS)" --workers $(WORKERS) $(CELLS)

# Builds wheels, and makes the clean environment the example runs in: .venv-demo.
demo: .venv-demo-tools/.ready
	.venv-demo-tools/bin/python benchmarks/demo.py

bench: .venv-bench/.ready
	.venv-bench/bin/python benchmarks/run.py $(BENCH)

# make calls CALLS="--instructions" counts by valgrind; --before REVISION has the wheel of another revision beside it
calls: .venv-bench/.ready
	.venv-bench/bin/python benchmarks/calls.py $(CALLS)

gemm: .venv-bench/.ready
	.venv-bench/bin/python benchmarks/gemm.py $(GEMM)

chart:
	"$(PYTHON)" benchmarks/chart.py

# Our guards beside dynamo's, tens of thousands of mutations; build/differential.json
differential: .venv-test/.ready
	.venv-test/bin/python tests/differential/run.py

# What comes from outside, changed at random: wheels, bundles, records, configuration. Five minutes, or as long as is
# said: make fuzz FUZZ="--seconds 3600"; a short run is in the suite. An installed wheel with a changed manifest, or
# with damaged files: tests/validation/manifests.py.
fuzz: .venv-test/.ready
	.venv-test/bin/python tests/validation/fuzz.py $(FUZZ)

# Small programs, built once; then something changes, and the wheel has to answer as eager code does. Hours on
# two cores; build/truth.json. A part of it: make truth TRUTH="--program Linear,swaps --change hook:"
truth: .venv-test/.ready
	.venv-test/bin/python tests/truth/run.py $(TRUTH)

# Some 440 models of transformers and other libraries, tiny: built, and called in fresh processes beside eager code. Two
# hours at most; build/models.json. A part: make models MODELS="--models bert,nn_lstm --resume". In their true sizes, a dozen of
# them: make models MODELS="--size large". A few are in the suite.
models: .venv-models/.ready
	.venv-models/bin/python tests/models/run.py $(MODELS)

# generate, a pipeline, encode, a server: a part: make programs PROGRAMS="--programs speech,serving"
programs: .venv-models/.ready
	.venv-models/bin/python tests/programs/run.py $(PROGRAMS)

# Some of it: make strangers STRANGERS="--cases with_e3nn,lazy_module"; what needs no package from the index: STRANGERS=--alone
STRANGERS_VENV := $(if $(filter --alone,$(STRANGERS)),.venv-test,.venv-strangers)
strangers: $(STRANGERS_VENV)/.ready
	$(STRANGERS_VENV)/bin/python tests/strangers/run.py $(STRANGERS)

# What people use on models: exporters, transforms, pickles, profilers, trainers. A part: make tools TOOLS="--tools pickle,export"
tools: .venv-tools/.ready
	.venv-tools/bin/python tests/tools/run.py $(TOOLS)

# Long. A part: make soak SOAK="--parts weights,server --share 0.1"
soak: .venv-test/.ready
	.venv-test/bin/python tests/tools/soak.py $(SOAK)

reference: .venv-lint/.ready
	.venv-lint/bin/python -m hatch_precompile.generate_docs

# Fails on any warning, such as a link that leads nowhere.
docs: .venv-docs/.ready
	.venv-docs/bin/mkdocs build --strict

clean:
	rm -rf build dist .venv-* .pytest_cache .mypy_cache .ruff_cache .hypothesis

# An environment is ready when its stamp is newer than what decides its contents. The directory goes
# first: one left half made by an interrupted run is of no use.
.venv-lint/.ready: pyproject.toml Makefile
	$(call new_environment,.venv-lint)
	.venv-lint/bin/python $(PIP_INSTALL) --editable ".[cli]" $(LINT_NEEDS)
	@touch $@

.venv-test/.ready: pyproject.toml Makefile
	$(call new_environment,.venv-test)
	.venv-test/bin/python $(PIP_INSTALL) --editable ".[cli]" $(TEST_NEEDS)
	@touch $@

.venv-models/.ready: pyproject.toml Makefile
	$(call new_environment,.venv-models)
	.venv-models/bin/python $(PIP_INSTALL) --editable ".[cli]" $(TEST_NEEDS) $(MODELS_NEEDS)
	.venv-models/bin/python $(PIP_INSTALL) --no-deps $(MODELS_ALONE)
	.venv-models/bin/python tests/models/torchvision_for_cpu.py
	@touch $@

# The packages, and with which versions, are in the table of what is expected of them.
.venv-strangers/.ready: pyproject.toml Makefile tests/strangers/outcomes.toml
	$(call new_environment,.venv-strangers)
	.venv-strangers/bin/python $(PIP_INSTALL) --editable ".[cli]" $(TEST_NEEDS) $$("$(PYTHON)" tests/strangers/run.py --needs)
	.venv-strangers/bin/python tests/models/torchvision_for_cpu.py
	@touch $@

.venv-tools/.ready: pyproject.toml Makefile
	$(call new_environment,.venv-tools)
	.venv-tools/bin/python $(PIP_INSTALL) --editable ".[cli]" $(TEST_NEEDS) $(TRIED_WITH)
	@touch $@

# The plugin goes in as a wheel, as it would anywhere: so it is made anew when a source of it changes.
.venv-bench/.ready: pyproject.toml Makefile $(wildcard hatch_precompile/*.py $(foreach ext,py h,hatch_precompile/*/*.$(ext) hatch_precompile/*/*/*.$(ext) hatch_precompile/*/*/*/*.$(ext)) templates/*.py templates/*/*.py templates/*/*/*.py)
	$(call new_environment,.venv-bench)
	.venv-bench/bin/python $(PIP_INSTALL) ".[cli]" $(BENCH_NEEDS)
	@touch $@

.venv-docs/.ready: Makefile
	$(call new_environment,.venv-docs)
	.venv-docs/bin/python $(PIP_INSTALL) $(DOCS_NEEDS)
	@touch $@

.venv-demo-tools/.ready: Makefile
	$(call new_environment,.venv-demo-tools)
	.venv-demo-tools/bin/python $(PIP_INSTALL) $(TOOLS_NEEDS)
	@touch $@

define new_environment
@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	|| { echo "make: Python 3.11 or newer is needed, \"$(PYTHON)\" is not; set PYTHON=" >&2; exit 1; }
@echo "making $(1)"
@rm -rf $(1)
@"$(PYTHON)" -m venv $(1)
endef
