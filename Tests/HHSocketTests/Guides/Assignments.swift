// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC

/// Every configuration that a row of assignments makes, one after the other: a page shows several where a program has
/// one.
struct Assignments {
    private let initial: SocketClient.Configuration
    /// One for each assignment, with all before it.
    private(set) var made: [SocketConfiguration] = []

    init(servers: [Endpoint] = []) {
        self.initial = SocketClient.Configuration(servers: servers)
    }

    /// As ``SocketClient/Configuration/socket``, so that an example assigns the same way.
    var socket: Recorder {
        get { Recorder(configuration: self.made.last ?? self.initial.socket) }
        set { self.made.append(newValue.configuration) }
    }

    @dynamicMemberLookup struct Recorder {
        fileprivate var configuration: SocketConfiguration

        subscript<Value>(dynamicMember path: WritableKeyPath<SocketConfiguration, Value>) -> Value {
            get { self.configuration[keyPath: path] }
            set { self.configuration[keyPath: path] = newValue }
        }
    }
}
