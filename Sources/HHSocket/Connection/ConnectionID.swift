/// Names one attempt and the connection that came of it. Later ones have greater numbers.
package struct ConnectionID: Hashable, Sendable, CustomStringConvertible {
    package var number: UInt64

    package init(number: UInt64) {
        self.number = number
    }

    package var description: String { "\(self.number)" }
}
