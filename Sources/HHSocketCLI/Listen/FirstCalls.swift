// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketRPC
import NIOCore

/// A call in the form `TYPE:TEXT` or `SERVICE/METHOD:JSON`.
struct CallText: ExpressibleByArgument, Sendable {
    /// A type, or the name of a method.
    var target: String
    var body: String

    init?(argument: String) {
        guard let (target, body) = argument.nameAndValue else { return nil }
        self.target = String(target)
        self.body = String(body)
    }
}

/// The calls that `listen` makes on each new connection, such as a login or a subscription.
struct FirstCalls: Sendable {
    private let requests: [SocketRequest]

    /// - Throws: An error of usage if a call has no such type or method; what else is wrong was reported on stderr.
    init(_ calls: [CallText], schema: ProtoSchema?, format: WireFormat) throws {
        self.requests = try calls.map { call in
            if let type = TypeArgument.number(call.target[...]) {
                try FormatArgument.validate(type: type, in: format)
                return SocketRequest(type: type, body: ByteBuffer(string: call.body))
            }
            guard let schema else {
                throw ValidationError("--call \(call.target): a type is a number, and a method requires --proto.")
            }
            let (method, type) = try schema.numberedMethod(call.target)
            try require(
                !method.requestIsStream && !method.responseIsStream,
                "--call \(call.target): the method streams, and only methods with one answer can be called."
            )
            return SocketRequest(type: type, body: try PayloadJSON(schema).request(call.body, of: method))
        }
    }

    /// Makes the calls, one after the other, and reports a failure on stderr.
    ///
    /// - Returns: Whether they may be made again on the next connection: no call has failed, or only since its
    ///   connection was lost.
    func run(on client: SocketClient) async -> Bool {
        for request in self.requests {
            do throws(SocketError) {
                _ = try await client.data(for: request)
            } catch {
                if error.code == .cancelled { return true }
                StandardError.report(error)
                return [.connectionLost, .notConnected].contains(error.code)
            }
        }
        return true
    }
}
