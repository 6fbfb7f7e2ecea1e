FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY migrations migrations
COPY app app
COPY deploy/hermes_plugin deploy/hermes_plugin
# pip compiles what it installs, so the running container has no bytecode to write.
RUN python -m venv /opt/talaria \
 && /opt/talaria/bin/python -m pip install --disable-pip-version-check --no-cache-dir . \
 && /opt/talaria/bin/python -m pip uninstall --disable-pip-version-check --yes setuptools pip

FROM python:3.11-slim-bookworm
COPY --from=build /opt/talaria /opt/talaria
COPY deploy/healthcheck.py /opt/talaria/healthcheck.py
# Runs under any uid, so whoever it is must be able to write here: a new named volume takes over this mode.
# What lies inside is 0600 and belongs to the uid that made it.
RUN mkdir /data && chmod 1777 /data
# Its uid has no name in the image, and the SSH library asks for one. A shell in here would be of no use to anybody: the
# terminal is on TALARIA_SSH_HOST, and off while that is not set.
ENV PATH=/opt/talaria/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    LOGNAME=talaria \
    TALARIA_TERMINAL_BACKEND=ssh \
    TALARIA_DATA_DIR=/data
VOLUME /data
USER 10001:10001
EXPOSE 8767
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s CMD ["/opt/talaria/bin/python", "/opt/talaria/healthcheck.py"]
CMD ["talaria", "serve"]
