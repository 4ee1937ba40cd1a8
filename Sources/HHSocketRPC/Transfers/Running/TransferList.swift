// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The transfers of a client in progress. On the socket thread.
struct TransferList {
    private var runs: [ObjectIdentifier: TransferRun] = [:]

    mutating func add(_ run: TransferRun) { self.runs[ObjectIdentifier(run)] = run }

    mutating func remove(_ run: TransferRun) { self.runs[ObjectIdentifier(run)] = nil }

    var count: Int { self.runs.count }

    /// Handles an event of the connection.
    func happened(_ event: SocketEvent) {
        guard !self.runs.isEmpty else { return }
        switch event {
        case .connected, .switched, .switchFailed, .disconnected:
            for run in self.runs.values { run.post { $0.connectionChanged(in: &$1) } }
        case .gaveUp(let error):
            for run in self.runs.values { run.post { $0.clientGaveUp(error, in: &$1) } }
        default: break
        }
    }

    /// Handles the release of the client. Work that is submitted from now on does not run.
    mutating func clientIsGone() {
        // The transfers refer to the client's core.
        let runs = self.runs
        self.runs = [:]
        for run in runs.values { run.clientIsGone() }
    }
}
