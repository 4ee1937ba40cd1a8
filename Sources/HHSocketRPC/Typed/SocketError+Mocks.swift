// SPDX-License-Identifier: Apache-2.0
import HHSocket

extension SocketError {
    /// The error of a mock client's call for which no handler is set.
    ///
    /// - Parameters:
    ///   - mock: The mock's type.
    ///   - handler: The name of the property to be set.
    static func unanswered(by mock: String, handler: String) -> SocketError {
        .invalid("\(mock) was not told what to answer: set its \(handler).")
    }

    /// Creates the error of a mock client's call whose handler threw `error`: that, if it is a
    /// ``/HHSocket/SocketError``; for a `CancellationError` the `cancelled` of a client whose task was cancelled while
    /// the call was in flight.
    package init(mocked error: any Error) {
        self =
            error as? SocketError
            ?? (error is CancellationError ? Self.cancelledMock(delivery: .sentUnknown) : nil)
            ?? SocketError(
                .unknown,
                message: "The mock's handler threw \(error).",
                underlying: error,
                delivery: .answered
            )
    }

    /// The error of a mock client's call whose task was cancelled.
    static func cancelledMock(delivery: Delivery) -> SocketError {
        SocketError(.cancelled, message: "The task of a mocked call was cancelled.", delivery: delivery)
    }
}
