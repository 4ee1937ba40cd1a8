// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// A transport that answers an ``APIManager``'s calls without a server, for tests of the code above it.
///
/// ```swift
/// let transport = MockTransport { request in ByteBuffer(string: "hello") }
/// let manager = APIManager(client: transport)
/// ```
public final class MockTransport: APITransport {
    private let answer: @Sendable (SocketRequest) async throws -> SocketResponse

    /// - Parameter answer: Called for each call, in a task that is cancelled with the call. If it throws an error that
    ///   is not a ``/HHSocket/SocketError``, the call fails with `unknown`, or with `cancelled` for a
    ///   `CancellationError` of the cancelled task.
    public init(response answer: @escaping @Sendable (SocketRequest) async throws -> SocketResponse) {
        self.answer = answer
    }

    /// Creates a transport whose answers have only a body.
    public convenience init(_ answer: @escaping @Sendable (SocketRequest) async throws -> ByteBuffer) {
        self.init(response: { request in
            SocketResponse(
                type: request.type,
                body: try await answer(request),
                endpoint: Endpoint(host: "mock", port: 1)
            )
        })
    }

    public func data(for request: SocketRequest) async throws(SocketError) -> SocketResponse {
        do {
            return try await self.answer(request)
        } catch {
            guard error is CancellationError, Task.isCancelled else { throw SocketError(mocked: error) }
            throw SocketError(.cancelled, message: "the call of type \(request.type) was cancelled", underlying: error)
        }
    }
}
