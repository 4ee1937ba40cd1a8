#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a STOMP broker of one's own on 127.0.0.1, in a temporary folder, and leaves nothing of it behind.

    brokers.py rabbitmq|coilmq|activemq [DOOR=PORT]...
    brokers.py rabbitmq|coilmq|activemq [DOOR=PORT]... -- COMMAND...

Prints a line of JSON once the broker is ready: its folder, the port of each of its doors, and what CONNECT's header host must be.
Ports are free ones but for those that are given, such as stomp=61613.
With COMMAND, it runs that with the addresses of the doors in the environment (HHSOCKET_ACTIVEMQ=localhost:PORT,
HHSOCKET_ACTIVEMQ_TLS, and the same for the other brokers), ends the broker, and exits with the command's exit code. Without, it
reads commands from standard input, one line each, and answers each with one line: "ok", "ok: JSON" or "error: JSON".

    stop            ends the broker as an operator would
    kill            kills it, with SIGKILL
    start           starts it again, with its data and on its ports
    run ARGUMENTS   runs rabbitmqctl with a JSON array of arguments, and answers with its output as a JSON string
    queues          answers with a JSON object: [ready, unacknowledged, consumers] of each queue of RabbitMQ

The broker is killed and its folder removed when standard input ends, which it also does when the process at its other end dies,
or when this process is killed: what runs the broker is a child of it, in a session of its own. The certificates are those of
Tests/Certificates.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
CERTIFICATES = pathlib.Path(__file__).resolve().parent.parent / "Certificates"
# Timeouts in seconds. RabbitMQ takes eight with a core of its own, and a machine with other work can take thirty times as long.
START, STOP, COMMAND = 240, 120, 120
# Another process may take a port while a broker starts: then the broker gets others.
ATTEMPTS = 3


class Failure(Exception):
    pass


def reserve(port=0):
    """A port, a free one if it is 0, and the socket that keeps the system from giving it to another process while the broker does not listen there.

    A port that is bound without listening refuses connections; on Linux another socket with SO_REUSEADDR may be bound to it. It is
    reserved on all addresses: RabbitMQ does not start where its port is in use on any of them, such as 127.0.0.2.
    """
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        reservation.bind(("", port))
    except OSError as error:
        raise Failure(f"port {port}: {error.strerror}") from None
    port = reservation.getsockname()[1]
    if sys.platform != "linux":
        reservation.close()
    return port, reservation


def installed(name, *folders):
    path = os.pathsep.join([*folders, os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin"])
    found = shutil.which(name, path=path)
    if not found:
        raise Failure(f"{name} is not installed")
    return found


class Broker:
    """A broker whose doors are reserved ports. Subclasses define its start, and when it is ready."""

    DOORS = ()
    # The required header host of CONNECT.
    host = "localhost"

    def __init__(self, folder, given):
        self.folder = pathlib.Path(folder)
        # The ports of some doors.
        self.given = given
        self.log = self.folder / "log"
        self.environment = dict(os.environ)
        self.processes = []
        self.process = None
        self.reserve_ports()

    def reserve_ports(self):
        self.reservations = {door: reserve(self.given.get(door, 0)) for door in self.DOORS}
        self.ports = {door: port for door, (port, _) in self.reservations.items()}

    def spawn(self, command):
        """Starts a process in a group of its own, whose output goes to the log."""
        with open(self.log, "ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def start(self):
        for attempt in range(ATTEMPTS):
            written = self.log.stat().st_size if self.log.exists() else 0
            self.process = self.launch()
            deadline = time.monotonic() + START
            while not self.is_ready(self.text(written)):
                ended = self.process.poll()
                if ended is not None or time.monotonic() > deadline:
                    self.kill()
                    text = self.text(written)
                    # Ports that clients know do not change.
                    if ended is not None and not written and "eaddrinuse" in text.lower() and attempt < ATTEMPTS - 1:
                        self.reserve_ports()
                        break
                    end = f"ended with exit code {ended}" if ended is not None else f"was not ready within {START} s"
                    raise Failure(f"{type(self).__name__} {end}; its log:\n{text[-8000:]}")
                time.sleep(0.02)
            else:
                return

    def text(self, start=0):
        with open(self.log, "rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")

    def is_ready(self, log):
        return all(self.listens(port) for port in self.ports.values())

    @staticmethod
    def listens(port):
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP)
            except subprocess.TimeoutExpired:
                raise Failure(f"{type(self).__name__} did not end within {STOP} s of SIGTERM") from None
        self.kill()

    def kill(self):
        for process in self.processes:
            # The group outlives its leader if another process of it does.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
            process.wait()
        self.processes.clear()


class RabbitMQ(Broker):
    """A node with its own name server, cookie and data. The doors are those of rabbitmq_stomp and rabbitmq_web_stomp."""

    DOORS = ("stomp", "stompTLS", "webSocket", "webSocketTLS", "distribution", "epmd")
    PLUGINS = "[rabbitmq_stomp,rabbitmq_web_stomp]."
    host = "/"

    def __init__(self, folder, given):
        super().__init__(folder, given)
        # Debian's rabbitmq-server in PATH changes to its own user if root starts it.
        self.program = installed("rabbitmq-server", "/usr/lib/rabbitmq/bin")
        self.control = installed("rabbitmqctl", "/usr/lib/rabbitmq/bin")
        self.name_server = installed("epmd")
        self.pid_file = self.folder / "pid"

    def launch(self):
        self.write_configuration()
        # Otherwise Erlang starts one that outlives it.
        self.spawn([self.name_server, "-port", str(self.ports["epmd"]), "-address", "127.0.0.1"])
        while not self.listens(self.ports["epmd"]):
            if self.processes[-1].poll() is not None:
                break
            time.sleep(0.005)
        return self.spawn([self.program])

    def is_ready(self, log):
        return "startup complete" in log and self.pid_file.exists()

    def write_configuration(self):
        ports, tls = self.ports, []
        for prefix in ("ssl_options", "web_stomp.ssl"):
            tls += [
                f"{prefix}.cacertfile = {CERTIFICATES}/authority.pem",
                f"{prefix}.certfile = {CERTIFICATES}/server.pem",
                f"{prefix}.keyfile = {CERTIFICATES}/server.key",
            ]
        lines = [
            "listeners.tcp = none",
            f"stomp.listeners.tcp.1 = 127.0.0.1:{ports['stomp']}",
            f"stomp.listeners.ssl.1 = 127.0.0.1:{ports['stompTLS']}",
            "web_stomp.tcp.ip = 127.0.0.1",
            f"web_stomp.tcp.port = {ports['webSocket']}",
            "web_stomp.ssl.ip = 127.0.0.1",
            f"web_stomp.ssl.port = {ports['webSocketTLS']}",
            *tls,
            "log.file = false",
            "log.console = true",
        ]
        (self.folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (self.folder / "enabled_plugins").write_text(self.PLUGINS + "\n")
        (self.folder / "environment").write_text("")
        self.environment.update(
            HOME=str(self.folder),
            RABBITMQ_NODENAME="hhsocket@localhost",
            RABBITMQ_CONF_ENV_FILE=str(self.folder / "environment"),
            RABBITMQ_CONFIG_FILE=str(self.folder / "rabbitmq.conf"),
            RABBITMQ_ENABLED_PLUGINS_FILE=str(self.folder / "enabled_plugins"),
            RABBITMQ_MNESIA_BASE=str(self.folder / "data"),
            RABBITMQ_LOG_BASE=str(self.folder / "logs"),
            RABBITMQ_PID_FILE=str(self.pid_file),
            RABBITMQ_DIST_PORT=str(ports["distribution"]),
            # Without these options the scheduler threads of an idle node spin.
            RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+sbwt none +sbwtdcpu none -kernel inet_dist_use_interface {127,0,0,1}",
            ERL_EPMD_ADDRESS="127.0.0.1",
            ERL_EPMD_PORT=str(ports["epmd"]),
        )

    def stop(self):
        if self.process.poll() is None:
            # The shell script that started the node does not forward a signal at once.
            os.kill(int(self.pid_file.read_text()), signal.SIGTERM)
            try:
                self.process.wait(STOP)
            except subprocess.TimeoutExpired:
                raise Failure(f"RabbitMQ did not end within {STOP} s of SIGTERM; its log:\n{self.text()[-8000:]}") from None
        self.kill()

    def kill(self):
        super().kill()
        self.pid_file.unlink(missing_ok=True)

    def run(self, arguments, program=None, sent=""):
        done = subprocess.run(
            [*(program or [self.control]), *arguments],
            env=self.environment,
            input=sent,
            capture_output=True,
            text=True,
            timeout=COMMAND,
        )
        if done.returncode != 0:
            raise Failure(f"exit code {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def queues(self):
        """The numbers of ready messages, unacknowledged messages and consumers of each queue, by its name.

        rabbitmqctl takes two seconds to start; Erlang's own program for calls takes milliseconds, but may be missing.
        """
        keys = ("messages_ready", "messages_unacknowledged", "consumers")
        erl_call = shutil.which("erl_call")
        if not erl_call:
            lines = json.loads(self.run(["list_queues", "--silent", "--formatter", "json", "name", *keys]))
            return {line["name"]: [line[key] for key in keys] for line in lines}
        cookie = (self.folder / ".erlang.cookie").read_text()
        infos = f'rabbit_amqqueue:info_all(<<"/">>, [name, {", ".join(keys)}])'
        lines = f"[io:format(\"~ts~n~w~n~w~n~w~n\", [N, R, U, C]) || [{{_, {{_, _, _, N}}}}, {{_, R}}, {{_, U}}, {{_, C}}] <- {infos}]"
        call = [erl_call, "-sname", self.environment["RABBITMQ_NODENAME"], "-c", cookie]
        call += ["-fetch_stdout", "-no_result_term", "-e"]
        # The last line distinguishes an empty list from an error.
        answer = self.run([], call, f'{lines}, io:format("end~n").\n').splitlines()
        if not answer or answer.pop() != "end" or len(answer) % 4:
            raise Failure(f"erl_call answered {answer}")
        return {answer[at]: [int(number) for number in answer[at + 1 : at + 4]] for at in range(0, len(answer), 4)}


class CoilMQ(Broker):
    """PyPI's coilmq, by the Python that runs this. Its queues are in memory: they are empty after a restart."""

    DOORS = ("stomp",)
    # It rejects any other host in STOMP 1.2.
    host = socket.getfqdn()

    def launch(self):
        start = "from coilmq.start import main; main()"
        return self.spawn([sys.executable, "-c", start, "--host", "127.0.0.1", "--port", str(self.ports["stomp"])])

    def stop(self):
        # It has no handler for SIGTERM.
        self.process.send_signal(signal.SIGINT)
        super().stop()


class ActiveMQ(Broker):
    """Debian's activemq without Spring and without a web console: its whole configuration is one URI."""

    DOORS = ("stomp", "stompTLS")
    HOME = pathlib.Path(os.environ.get("ACTIVEMQ_HOME") or "/usr/share/activemq")

    def launch(self):
        java = installed("java")
        archives = sorted(str(path) for path in (self.HOME / "lib").glob("*.jar"))
        if not archives:
            raise Failure(f"ActiveMQ is not installed: there is nothing in {self.HOME}/lib")
        keys, password = self.folder / "keys.p12", "hhsocket"
        command = ["openssl", "pkcs12", "-export", "-passout", f"pass:{password}", "-out", str(keys)]
        command += ["-inkey", str(CERTIFICATES / "server.key"), "-in", str(CERTIFICATES / "server.pem")]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        doors = f"stomp://127.0.0.1:{self.ports['stomp']},stomp+ssl://127.0.0.1:{self.ports['stompTLS']}"
        options = {
            "java.util.logging.config.file": "/dev/null",
            "activemq.home": self.folder,
            "activemq.base": self.folder,
            "javax.net.ssl.keyStore": keys,
            "javax.net.ssl.keyStorePassword": password,
        }
        return self.spawn(
            [java, "-Xmx512m", "-XX:+UseSerialGC", *(f"-D{name}={value}" for name, value in options.items())]
            + ["-cp", ":".join(archives), "org.apache.activemq.console.Main", "start"]
            + [f"broker:({doors})/hhsocket?useJmx=false&persistent=true&dataDirectory={self.folder}/data"]
        )


BROKERS = {"rabbitmq": RabbitMQ, "coilmq": CoilMQ, "activemq": ActiveMQ}


def answer(broker, line):
    verb, _, rest = line.strip().partition(" ")
    try:
        if verb in ("start", "stop", "kill"):
            getattr(broker, verb)()
            return "ok"
        if verb == "run":
            return "ok: " + json.dumps(broker.run(json.loads(rest)))
        if verb == "queues":
            return "ok: " + json.dumps(broker.queues())
        return "error: " + json.dumps(f"there is no command {verb}")
    except (Failure, OSError, subprocess.SubprocessError) as error:
        return "error: " + json.dumps(str(error))


def supervise(name, given, command):
    folder = tempfile.mkdtemp(prefix="hh-")
    broker = None
    try:
        broker = BROKERS[name](folder, given)
        broker.start()
        print(json.dumps({"folder": folder, "host": broker.host, "ports": broker.ports}), flush=True)
        if command:
            variable = f"HHSOCKET_{name.upper()}"
            addresses = {"stomp": variable, "stompTLS": f"{variable}_TLS"}
            environment = {addresses[door]: f"localhost:{port}" for door, port in broker.ports.items() if door in addresses}
            return subprocess.run(command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL).returncode
        for line in sys.stdin:
            print(answer(broker, line), flush=True)
        return 0
    except Failure as failure:
        print(f"brokers: {failure}", file=sys.stderr, flush=True)
        return 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        if broker:
            broker.kill()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in BROKERS:
        sys.exit(__doc__)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    command = sys.argv[end + 1 :]
    given = {door: int(port) for door, _, port in (word.partition("=") for word in sys.argv[2:end])}
    child = os.fork()
    if child == 0:
        if not command:
            os.setsid()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        sys.exit(supervise(sys.argv[1], given, command))
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    # Its child must have the only end of standard input.
    if not command:
        os.close(0)
    while True:
        try:
            _, status = os.waitpid(child, 0)
            sys.exit(os.waitstatus_to_exitcode(status) % 256)
        except KeyboardInterrupt:
            continue


if __name__ == "__main__":
    main()
