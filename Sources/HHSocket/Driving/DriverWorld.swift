// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// The clock, network and chance of a driver, where they are not the system's: for virtual time.
package struct DriverWorld: Sendable {
    /// The thread of the driver's event loop, with its clock.
    let thread: LoopThread
    /// Makes the bootstraps that open connections.
    let makeBootstrap: @Sendable () -> any NIOClientTCPBootstrapProtocol
    /// Looks up a name, if an order of address families is requested.
    let lookUp: @Sendable (_ host: String, AddressFamilies) -> EventLoopFuture<[String]>
    /// Draws the numbers by which waits are spread.
    let random: @Sendable () -> UInt64

    package init(
        thread: LoopThread,
        makeBootstrap: @escaping @Sendable () -> any NIOClientTCPBootstrapProtocol,
        lookUp: @escaping @Sendable (_ host: String, AddressFamilies) -> EventLoopFuture<[String]>,
        random: @escaping @Sendable () -> UInt64
    ) {
        self.thread = thread
        self.lookUp = lookUp
        self.makeBootstrap = makeBootstrap
        self.random = random
    }
}

/// The source of a driver's random numbers: the system's, or its world's.
struct DriverGenerator: RandomNumberGenerator, Sendable {
    private var system = SystemRandomNumberGenerator()
    private let world: DriverWorld?

    init(_ world: DriverWorld?) {
        self.world = world
    }

    mutating func next() -> UInt64 { self.world?.random() ?? self.system.next() }
}
