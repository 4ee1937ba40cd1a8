// SPDX-License-Identifier: Apache-2.0
/// The reason why JSON cannot be read as a message, or a message cannot be written as JSON, with its place.
public struct MessageJSONError: Error, CustomStringConvertible {
    enum Step {
        case member(String)
        /// A key of a map.
        case key(String)
        case element(Int)
    }

    /// The steps from the innermost to the outermost; nil for an error of the whole text.
    private var steps: [Step]?
    private let reason: String

    init(_ reason: String) {
        self.reason = reason
        self.steps = []
    }

    /// - Parameter path: The steps from the outermost to the innermost; nil for an error of the whole text.
    init(_ reason: String, at path: [Step]?) {
        self.reason = reason
        self.steps = path?.reversed()
    }

    /// Returns this error with one more enclosing step.
    func within(_ step: Step) -> Self {
        var error = self
        error.steps?.append(step)
        return error
    }

    /// The place and the reason, such as `$.note.tags[2]: expected a string, found a number`.
    public var description: String {
        guard let steps = self.steps else { return self.reason }
        let path = steps.reversed().map { step in
            switch step {
            case .member(let name) where Self.isPlain(name): ".\(name)"
            case .member(let name), .key(let name): "[\(name.quotedInJSON)]"
            case .element(let index): "[\(index)]"
            }
        }
        return "$\(path.joined()): \(self.reason)"
    }

    private static func isPlain(_ name: String) -> Bool {
        !name.isEmpty && name.utf8.allSatisfy { $0 == UInt8(ascii: "_") || $0.isASCIILetter || $0.isASCIIDigit }
    }

    static func expected(_ expected: String, _ found: JSONValue) -> Self {
        Self("expected \(expected), found \(found.kind)")
    }
}
