// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A second server at the path of a Unix domain socket whose server is another process, which does not answer.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct UnixSocketRivalTests {
    /// More than the number of connections that a server accepts before it stops, and that wait then:
    /// ``ServerListener/backlog`` is 4,096.
    private static let fullQueue = 4_500

    /// The program that starts another one as another user; nil where that cannot be tested.
    private static let setpriv: URL? = {
        guard geteuid() == 0, let setpriv = Command.installed("setpriv") else { return nil }
        let isExecutable = ([setpriv.path] + Self.otherUser + [Command.hhsocket.path, "--version"])
            .map { "'\($0)'" }
            .joined(separator: " ")
        return system("\(isExecutable) >/dev/null 2>&1") == 0 ? setpriv : nil
    }()

    private static let otherUser = ["--reuid=65534", "--regid=65534", "--clear-groups"]
    private static let whyNot: Comment = """
        Sockets of other users are NOT TESTED here: only root may start a server as another user, who must have \
        permission to execute it, with setpriv (util-linux).
        """

    private let folder: TemporaryFolder
    private let path: String

    init() throws {
        self.folder = try TemporaryFolder()
        self.path = self.folder.file("s")
    }

    private var arguments: [String] { ["serve", "--host", "unix:\(self.path)"] }

    private func fileNumber() throws -> UInt64 {
        var information = stat()
        try #require(lstat(self.path, &information) == 0)
        return UInt64(information.st_ino)
    }

    /// Starts a server, and runs `body`; then the server must still be found, and must remove its socket.
    private func withFirstServer(_ body: (Command) async throws -> Void) async throws {
        let first = try Command(self.arguments)
        _ = try await first.lines()
        let number = try self.fileNumber()
        try await body(first)
        #expect(try self.fileNumber() == number)
        // It may have to accept a full queue first.
        let call = ["call", "unix:\(self.path)", "--type", "1000", "--body", "hello", "--timeout", "5m"]
        let answer = try await Command.run(call)
        #expect(answer.text == "hello", "\(answer.errors)")
        first.signal(SIGTERM)
        #expect(try await first.outcome().exitCode == 0)
        #expect(!FileManager.default.fileExists(atPath: self.path))
    }

    private func expectRefusal(_ outcome: Command.Outcome) {
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.contains("another server listens there"), "\(outcome.errors)")
    }

    /// Connects until the queue is full. Returns the descriptors of the connections.
    private func fillQueue() throws -> [CInt] {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let path = Array(self.path.utf8)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
        var descriptors: [CInt] = []
        while true {
            #if canImport(Glibc)
            let descriptor = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0)
            #else
            let descriptor = socket(AF_UNIX, SOCK_STREAM, 0)
            #endif
            try #require(descriptor >= 0)
            descriptors.append(descriptor)
            _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
            let status = withUnsafePointer(to: &address) { address in
                address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
                }
            }
            if status != 0 { return descriptors }
            try #require(descriptors.count < Self.fullQueue)
        }
    }

    /// Whether this process may have as many connections as fill a queue, and the system tells that from a dead server.
    private static let mayFill: Bool = {
        #if os(Linux)
        var limit = rlimit()
        #if canImport(Glibc)
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        #else
        let resource = RLIMIT_NOFILE
        #endif
        return getrlimit(resource, &limit) == 0 && limit.rlim_cur > Self.fullQueue + 500
        #else
        return false
        #endif
    }()

    @Test(arguments: mayFill ? [false, true] : [false]) func thatOfAStoppedServerStays(isQueueFull: Bool) async throws {
        try await self.withFirstServer { first in
            first.signal(SIGSTOP)
            let descriptors = isQueueFull ? try self.fillQueue() : []
            let outcome = try await Command.run(self.arguments)
            for descriptor in descriptors { close(descriptor) }
            first.signal(SIGCONT)
            self.expectRefusal(outcome)
        }
    }

    @Test(.enabled(if: setpriv != nil, whyNot)) func thatOfAnotherUserStays() async throws {
        let setpriv = try #require(Self.setpriv)
        // The other user could remove it.
        try #require(chmod(self.folder.path, 0o777) == 0)
        try await self.withFirstServer { _ in
            try #require(chmod(self.path, 0o700) == 0)
            self.expectRefusal(
                try await Command.run(Self.otherUser + [Command.hhsocket.path] + self.arguments, of: setpriv)
            )
        }
    }
}
