# fedasd_fast with CPU kernels.  From the root of the repository:
#   docker build -f docker/cpu.Dockerfile -t fedasd-fast .
#   docker run --rm -v "$PWD/runs:/runs" fedasd-fast run quickstart out=/runs/quickstart
FROM python:3.12-slim-bookworm AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
ENV PIP_NO_CACHE_DIR=1 PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
COPY constraints.txt .
RUN python -m venv /opt/fedasd \
    && /opt/fedasd/bin/pip install -c constraints.txt torch 'setuptools>=77' ninja
COPY . .
RUN PATH="/opt/fedasd/bin:$PATH" FEDASD_BUILD=_C pip install -c constraints.txt --no-build-isolation '.[simulation]'

FROM python:3.12-slim-bookworm
COPY --from=build /opt/fedasd /opt/fedasd
ENV PATH="/opt/fedasd/bin:$PATH"
RUN useradd --create-home fedasd && mkdir /runs && chown fedasd /runs
USER fedasd
WORKDIR /runs
# Fails the build if the kernels do not load.
RUN python -c "import fedasd_fast as fa; info = fa.build_info(); assert info['extension'], info['reason']"
ENTRYPOINT ["fedasd"]
CMD ["--help"]
