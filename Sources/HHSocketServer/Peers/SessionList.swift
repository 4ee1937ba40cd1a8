// SPDX-License-Identifier: Apache-2.0
/// The connections of an event loop, in an order in which they can be iterated a few at a time, while others are added
/// and removed.
///
/// `Session` is a class, or a protocol of classes.
struct SessionList<Session> {
    private var sessions: [Session] = []
    private var indices: [ObjectIdentifier: Int] = [:]

    var isEmpty: Bool { self.sessions.isEmpty }
    var count: Int { self.sessions.count }
    /// All of them, as a copy.
    var all: [Session] { self.sessions }

    /// Adds it, unless the list contains it already: then it keeps its position.
    mutating func append(_ session: Session) {
        let id = ObjectIdentifier(session as AnyObject)
        guard self.indices[id] == nil else { return }
        self.indices[id] = self.sessions.count
        self.sessions.append(session)
    }

    /// - Returns: Whether the list contained it.
    @discardableResult
    mutating func remove(_ session: Session) -> Bool {
        guard let index = self.indices.removeValue(forKey: ObjectIdentifier(session as AnyObject)) else { return false }
        // The last one replaces it.
        let last = self.sessions.removeLast()
        if index < self.sessions.count {
            self.sessions[index] = last
            self.indices[ObjectIdentifier(last as AnyObject)] = index
        }
        return true
    }

    /// Returns up to `count` connections before the position `end`, the last one first.
    ///
    /// A caller that continues with the position of the last one returned visits all connections that were there at the
    /// beginning, and some of them twice if others are removed meanwhile.
    func slice(before end: Int, count: Int) -> (sessions: [Session], position: Int) {
        let end = min(end, self.sessions.count)
        let position = max(0, end - count)
        return (self.sessions[position..<end].reversed(), position)
    }
}
