# make demo and make test do all the set-up themselves; everything they create is in .venv and build.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SOURCES := $(shell find csrc -type f) setup.py pyproject.toml constraints.txt $(shell find fedasd_fast -name '*.py' -o -name '*.yaml')
CPP_FILES := $(shell find csrc tests/cpp -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inl')
CORE   := build/core
CUDA   := build/cuda
CUDA_EXTENSION := build/cuda-extension
CUDA_VENV ?= .venv-cuda
JOBS   ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)

# The torch-free CUDA library, for every architecture since Turing.
NVCC       ?= nvcc
CUDA_ARCHS ?= 75 80 86 89 90 100 120
# All of them take minutes: the tests compile for the oldest, and for the newest of both lines.
TEST_CUDA_ARCHS := 75 90 120
NVCC_FLAGS := -std=c++17 -O3 -Xptxas -v -Xcompiler -fPIC,-Wall,-Wextra,-Wno-unknown-pragmas \
              $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a))
CUDA_OBJECTS := $(patsubst csrc/cuda/%.cu,$(CUDA)/%.o,$(wildcard csrc/cuda/*.cu))

.PHONY: demo demo-loss test test-python test-core test-cuda cuda cuda-extension bench bench-gpu bench-peers bench-peers-setup lint format clean help

help:
	@echo "make demo   set up, then FedAvg against FedAvg+ASD on 500 clients: a table and a picture (two minutes, most of it compiling)"
	@echo "make demo-loss  reference and fused loss side by side"
	@echo "make test   set up, then run the C++ and the Python tests"
	@echo "make cuda   compile the CUDA kernels (needs nvcc, no GPU) and print what ptxas says of them"
	@echo "make cuda-extension  build the extension with CUDA in a venv of its own (several GB), test it"
	@echo "make bench-gpu       measure the loss kernels on this machine's GPU (after make cuda-extension)"
	@echo "make bench  measure the loss kernels and rewrite docs/benchmarks.md (about 6 minutes; leave the machine alone)"
	@echo "make bench-peers-setup  install pfl-research and Flower in venvs of their own (2.5 GB)"
	@echo "make bench-peers        this simulator beside them and beside plain loops (leave the machine alone)"
	@echo "make lint   ruff, mypy, clang-format: check"
	@echo "make format ruff, clang-format: rewrite"
	@echo "make clean  remove everything that was built"

$(BIN)/python:
	@echo "== creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)

# torch comes first, alone and pinned: an unpinned one would bring gigabytes of CUDA libraries.
$(VENV)/.tools: $(BIN)/python constraints.txt pyproject.toml
	@echo "== installing torch and the tools"
	$(BIN)/pip install -q -c constraints.txt torch setuptools wheel ninja cmake
	$(BIN)/pip install -q -c constraints.txt numpy pyyaml rich matplotlib pillow scikit-learn curvlinops-for-pytorch scipy
	$(BIN)/pip install -q -c constraints.txt pytest hypothesis pytest-benchmark ruff mypy types-PyYAML clang-format
	@touch $@

$(STAMP): $(VENV)/.tools $(SOURCES)
	@echo "== compiling and installing fedasd_fast"
	$(BIN)/pip install -q -c constraints.txt --no-build-isolation --no-deps -e .
	@touch $@

demo: $(STAMP)
	$(BIN)/fedasd compare quickstart --out build/demo

demo-loss: $(STAMP)
	$(BIN)/python -m benchmarks.demo

test: test-core test-cuda test-python

# Compiles only; the Python tests read what ptxas said.
test-cuda:
	@if command -v $(NVCC) >/dev/null; then $(MAKE) --no-print-directory cuda CUDA=build/cuda-test CUDA_ARCHS="$(TEST_CUDA_ARCHS)"; \
	else echo "== no nvcc: the CUDA kernels are not compiled, only run on the CPU by the C++ tests"; fi

test-python: $(STAMP)
	@echo "== Python tests"
	$(BIN)/python -m pytest

test-core: $(VENV)/.tools
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

cuda:
	@command -v $(NVCC) >/dev/null || (echo "make cuda needs nvcc: install the CUDA toolkit, or set NVCC=/path/to/nvcc"; exit 1)
	@$(MAKE) --no-print-directory -j$(JOBS) $(CUDA)/kernels.md
	@cat $(CUDA)/kernels.md

# In a copy of the tree: both builds of the extension would have the same name.  Only the package index is asked for
# torch, because a local folder of wheels may hold a CPU build of the same version.
cuda-extension:
	$(PYTHON) -m venv $(CUDA_VENV)
	PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= $(CUDA_VENV)/bin/pip install -q -c constraints.txt \
	  torch setuptools wheel ninja numpy pyyaml rich pytest hypothesis pytest-benchmark
	@mkdir -p $(CUDA_EXTENSION)
	cp -Rp setup.py pyproject.toml README.md LICENSE csrc fedasd_fast tests benchmarks $(CUDA_EXTENSION)/
	rm -f $(CUDA_EXTENSION)/fedasd_fast/*.so
	cd $(CUDA_EXTENSION) && PATH="$(abspath $(CUDA_VENV))/bin:$$PATH" FORCE_CUDA=1 python setup.py build_ext --inplace
	cd $(CUDA_EXTENSION) && $(abspath $(CUDA_VENV))/bin/python -c "import fedasd_fast; print(fedasd_fast.build_info())"
	cd $(CUDA_EXTENSION) && $(abspath $(CUDA_VENV))/bin/python -m pytest tests/loss tests/gpu tests/test_extension.py

bench-gpu:
	@test -x $(CUDA_VENV)/bin/python || (echo "make cuda-extension comes first"; exit 1)
	cd $(CUDA_EXTENSION) && $(abspath $(CUDA_VENV))/bin/python -m benchmarks.gpu --out $(abspath build/benchmarks-gpu)

bench: $(STAMP)
	$(BIN)/python -m benchmarks.loss --out build/benchmarks
	$(BIN)/python -m benchmarks.report build/benchmarks

# The peers take 2.5 GB; W1, W2 and W3 some minutes each.
bench-peers-setup: $(BIN)/python
	$(BIN)/python -m benchmarks.peers.setup

bench-peers: $(STAMP)
	for workload in W1 W2 W3; do $(BIN)/python -m benchmarks.peers $$workload || exit 1; done

lint: $(VENV)/.tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP_FILES)

format: $(VENV)/.tools
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP_FILES)

clean:
	rm -rf $(VENV) $(CUDA_VENV) build dist *.egg-info fedasd_fast/*.so fedasd_fast/_built_for.txt .pytest_cache .ruff_cache .mypy_cache
	rm -rf .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
