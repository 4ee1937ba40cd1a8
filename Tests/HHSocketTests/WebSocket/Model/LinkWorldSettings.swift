// SPDX-License-Identifier: Apache-2.0
@testable import HHSocket
@testable import HHSocketLink

/// The settings of a history's link, and the expectations of it.
struct LinkWorldSettings {
    var maximumWaiting = 10_000
    var maximumBytes = 64 << 20
    var isCompressed = false
    var usesHandler = false
    var heartbeat: (interval: Int, reply: Int)? = (60, 8)
    var beatsAreMessages = false
    var background = BackgroundPolicy.finishTasks
    var serverCount = 1
    var maximumRounds: Int?

    // Changed by tests of the harness itself.
    var expectedWaiting: Int?
    var patience = 5
    var ignoresEachTenth = false
    var expectedCap = 60
    var expectsReason = true

    init(seed: UInt64) {
        let kind = Int(seed)
        self.isCompressed = kind % 4 == 1
        self.usesHandler = kind % 3 == 1
        if kind % 5 == 2 { self.maximumWaiting = 4 }
        if kind % 5 == 3 { self.maximumBytes = 3_000 }
        if kind % 7 == 3 { self.heartbeat = (10, 4) }
        if kind % 7 == 5 { self.heartbeat = nil }
        self.beatsAreMessages = kind % 11 == 4
        self.background = [.finishTasks, .failTasks, .keepConnected][kind / 3 % 3]
        if kind % 13 == 6 { self.serverCount = 2 }
        if kind % 17 == 9 { self.maximumRounds = 3 }
    }
}
