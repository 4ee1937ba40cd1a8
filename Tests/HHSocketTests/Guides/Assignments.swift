// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC

/// Every configuration that a row of assignments makes, one after the other: a page shows several where a program has
/// one.
struct Assignments {
    private let initial: SocketClient.Configuration
    /// A configuration for each assignment, with all earlier ones.
    private(set) var made: [SocketConfiguration] = []

    init(servers: [Endpoint] = []) {
        self.initial = SocketClient.Configuration(servers: servers)
    }

    /// Corresponds to ``SocketClient/Configuration/socket``, so that examples can be used unchanged.
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
