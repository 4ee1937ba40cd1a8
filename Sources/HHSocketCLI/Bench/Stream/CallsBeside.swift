// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC

/// Small plain calls at a fixed rate on the connections of streams, which measure how long they wait behind items.
struct CallsBeside: Sendable {
    /// The length of the bodies, in bytes.
    static let bodyLength = 16
    /// The greatest number of calls on a connection that wait for answers; others start later, and count as late.
    private static let inFlightLimit = 256

    private let parameters: EchoParameters
    private let rate: Double
    private let window: MeasuredWindow

    /// Nil for no calls.
    init?(_ parameters: EchoParameters, _ window: MeasuredWindow) {
        guard let rate = parameters.callsBeside else { return nil }
        self.parameters = parameters
        self.rate = rate
        self.window = window
    }

    /// Makes the calls of one connection until the window ends.
    ///
    /// - Parameter number: The index of the connection, from 0.
    /// - Throws: ``EchoFailure`` if a call fails or is answered wrongly.
    func run(on client: SocketClient, number: Int) async throws -> EchoTally {
        try await AsyncLoop(
            client: client,
            caller: BodyCaller(EchoBody(length: Self.bodyLength, type: self.parameters.type)),
            inFlight: Self.inFlightLimit,
            executor: self.parameters.executor ?? .global,
            tally: EchoTally(.schedule, window: self.window),
            schedule: StartSchedule(
                rate: self.rate,
                origin: self.window.begin,
                connection: number,
                of: self.parameters.connections
            )
        )
        .run()
    }
}
