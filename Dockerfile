# The command `hhsocket` on a plain Debian: a server by default, and every other command with it.
#
#     docker build -t hhsocket .
#     docker run -p 7000:7000 -p 127.0.0.1:9464:9464 hhsocket
#     docker run --rm hhsocket call example.com:7000 --type 1000 --body hello
#
# The program has Swift's runtime in it, so the image needs no toolchain.
FROM swift:6.3-bookworm AS build
WORKDIR /source
COPY . .
RUN apt-get update && apt-get install -y --no-install-recommends make && make install DESTDIR=/installed PREFIX=/usr

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libprotobuf-c1 zlib1g \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --no-create-home hhsocket
COPY --from=build /installed/usr/bin/hhsocket /usr/bin/hhsocket
USER hhsocket
EXPOSE 7000 9464
# SIGTERM tells clients to go away and finishes what is in flight.
STOPSIGNAL SIGTERM
ENTRYPOINT ["hhsocket"]
CMD ["serve", "--host", "0.0.0.0", "--port", "7000", "--monitoring", "0.0.0.0:9464"]
