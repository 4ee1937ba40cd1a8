// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The delivery of messages to the user, who may be slow.
extension STOMPCore {
    /// Whether reading should be suspended. While the user waits for an answer of the broker, which may follow
    /// messages, these are read up to a limit.
    var isBehind: Bool {
        guard !self.fullRoutes.isEmpty || self.machine.isOverdrawn else { return false }
        guard self.operations.count > 0 else { return true }
        let bytes = self.routes.values.reduce(0) { $0 + ($1.inbox?.bufferedBytes ?? 0) }
        return bytes >= self.configuration.maximumBufferedBytes
    }

    /// Makes the session check again whether to read, if that has changed.
    func reconsiderReading() {
        let isUnwanted = self.isBehind
        guard isUnwanted != self.isReadingUnwanted else { return }
        self.isReadingUnwanted = isUnwanted
        self.session?.updateReading()
    }

    /// Whether the messages of a subscription are read fast enough has changed. Any thread.
    func fullnessChanged(_ id: String) {
        self.perform { _ in
            if let route = self.routes[id], route.delivery.isFull {
                self.fullRoutes.insert(id)
            } else {
                self.fullRoutes.remove(id)
            }
            self.reconsiderReading()
        }
    }

    func isNoLongerFull(_ id: String) {
        self.fullRoutes.remove(id)
        self.reconsiderReading()
    }

    func deliver(_ message: STOMPMessage, in turn: inout Turn) {
        guard let id = message.delivery?.subscription, let route = self.routes[id], let peer = self.peer else { return }
        _ = route.delivery.deliver(message, isLast: false, on: peer.link.loop, in: &turn)
        // While reading continues in order to get an answer, there is a limit.
        if !self.fullRoutes.isEmpty || self.machine.isOverdrawn { self.reconsiderReading() }
    }
}
