// SPDX-License-Identifier: Apache-2.0
package import HHSocket

/// The completions of functions, and whether each ran before its function had returned.
package final class Completions: Sendable {
    package struct Completion: Hashable, Sendable {
        /// Nil: success.
        package var code: SocketError.Code?
        /// Whether it ran within the call, on the thread of the caller.
        package var isEarly: Bool

        package static let sent = Completion(code: nil, isEarly: false)
        package static func refused(_ code: SocketError.Code) -> Completion { Completion(code: code, isEarly: false) }
    }

    @TaskLocal private static var isInCall = false

    private let all = Watched<[String: [Completion]]>([:])

    package init() {}

    /// Calls a function, whose completion is recorded by `name`.
    package func of(_ name: String, _ function: (@escaping @Sendable (Result<Void, SocketError>) -> Void) -> Void) {
        Self.$isInCall.withValue(true) {
            function { result in
                var completion = Completion(code: nil, isEarly: Self.isInCall)
                if case .failure(let error) = result { completion.code = error.code }
                self.all.withLockedValue { $0[name, default: []].append(completion) }
            }
        }
    }

    /// Waits until each of `count` functions has called its completion, and returns the completions.
    package func wait(
        for count: Int,
        fileID: String = #fileID,
        line: Int = #line
    ) async throws -> [String: [Completion]] {
        try await self.all.wait("\(count) completions", fileID: fileID, line: line) { $0.count == count }
        return self.all.current
    }
}
