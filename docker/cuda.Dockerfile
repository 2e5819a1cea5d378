# fedasd_fast with CUDA kernels for every architecture since Turing, or those of ARCHITECTURES (quicker).  A GPU is not
# needed to build.  From the root of the repository:
#   docker build -f docker/cuda.Dockerfile -t fedasd-fast:cuda --build-arg ARCHITECTURES=9.0 .
#   docker run --rm --gpus all -v "$PWD/runs:/runs" fedasd-fast:cuda doctor
# The toolkit has the major version of the CUDA that torch was built with.
FROM nvidia/cuda:13.0.2-devel-ubuntu24.04 AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
ENV PIP_NO_CACHE_DIR=1 PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cu130
COPY constraints.txt .
RUN python3 -m venv /opt/fedasd \
    && /opt/fedasd/bin/pip install -c constraints.txt torch 'setuptools>=77' ninja
COPY . .
ARG ARCHITECTURES="7.5 8.0 8.6 8.9 9.0 10.0 12.0+PTX"
RUN PATH="/opt/fedasd/bin:$PATH" FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST="$ARCHITECTURES" \
    pip install -c constraints.txt --no-build-isolation '.[simulation]'

# torch brings CUDA's libraries: the toolkit is not needed to run.
FROM ubuntu:24.04
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/fedasd /opt/fedasd
ENV PATH="/opt/fedasd/bin:$PATH" NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN useradd --create-home fedasd && mkdir /runs && chown fedasd /runs
USER fedasd
WORKDIR /runs
# Fails the build if the kernels do not load.
RUN python3 -c "import fedasd_fast as fa; info = fa.build_info(); assert 'cuda' in info['devices'], info"
ENTRYPOINT ["fedasd"]
CMD ["--help"]
