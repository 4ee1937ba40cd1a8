import HHSocket

extension SocketError {
    /// What a mock client's call fails with that nobody has told what to answer.
    ///
    /// - Parameters:
    ///   - mock: The mock's type.
    ///   - handler: The name of the property to be set.
    public static func unanswered(by mock: String, handler: String) -> SocketError {
        SocketError(.invalidArgument, message: "\(mock) was not told what to answer: set its \(handler).")
    }

    /// What a mock client's call fails with when its handler has thrown `error`: that, where it is a ``SocketError``.
    public init(mocked error: any Error) {
        self =
            error as? SocketError
            ?? SocketError(
                .unknown,
                message: "The mock's handler threw \(error).",
                underlying: error,
                delivery: .answered
            )
    }
}
