import HHSocket

/// Every configuration that a row of assignments makes, one after the other: a page shows several where a program has one.
@dynamicMemberLookup struct Assignments {
    private let initial: SocketConfiguration
    private(set) var made: [SocketConfiguration] = []

    init(servers: [Endpoint] = []) {
        self.initial = SocketConfiguration(servers: servers)
    }

    subscript<Value>(dynamicMember path: WritableKeyPath<SocketConfiguration, Value>) -> Value {
        get { (self.made.last ?? self.initial)[keyPath: path] }
        set {
            var next = self.made.last ?? self.initial
            next[keyPath: path] = newValue
            self.made.append(next)
        }
    }
}
