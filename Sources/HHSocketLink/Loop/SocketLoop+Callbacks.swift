// SPDX-License-Identifier: Apache-2.0
extension CallbackQueue {
    /// Runs `body` where callbacks run, after this function has returned.
    ///
    /// - Parameter loop: The loop of the socket thread. Once it has ended, `body` runs on the calling thread instead.
    package func run(on loop: SocketLoop, _ body: @escaping @Sendable () -> Void) {
        switch self {
        case .queue(let queue): queue.async(execute: body)
        case .socketThread: if !loop.submit(.closure { $0.callBack(.closure(body)) }) { body() }
        }
    }
}
