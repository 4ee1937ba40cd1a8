// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Messages on their way to the user, who may be behind.
extension STOMPCore {
    /// Whether nothing more should be read for now. While the user waits for an answer of the broker's, that may stand
    /// behind messages: they are read then, up to a limit.
    var isBehind: Bool {
        guard !self.fullRoutes.isEmpty || self.machine.isOverdrawn else { return false }
        guard self.operations.count > 0 else { return true }
        let bytes = self.routes.values.reduce(0) { $0 + ($1.inbox?.bufferedBytes ?? 0) }
        return bytes >= self.configuration.maximumBufferedBytes
    }

    /// Has the session ask again whether to read, where that has changed.
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
        // While it is read on for the sake of an answer, that has a limit.
        if !self.fullRoutes.isEmpty || self.machine.isOverdrawn { self.reconsiderReading() }
    }
}
