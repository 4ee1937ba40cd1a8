// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketMessage
import NIOCore

/// One JSON object on one line, with its members in the given order.
struct JSONLine {
    private var members: [String] = []

    mutating func add(_ name: String, _ value: some BinaryInteger) {
        self.members.append("\(Self.quoted(name)):\(value)")
    }

    /// Adds a number; nil, and numbers that are not finite, become null.
    ///
    /// - Parameter digits: The number of digits after the point.
    mutating func add(_ name: String, _ value: Double?, digits: Int) {
        let text = value.flatMap { $0.isFinite ? String(format: "%.\(digits)f", $0) : nil } ?? "null"
        self.members.append("\(Self.quoted(name)):\(text)")
    }

    /// Adds a string; nil becomes null.
    mutating func add(_ name: String, _ value: String?) {
        self.members.append("\(Self.quoted(name)):\(value.map { Self.quoted($0) } ?? "null")")
    }

    mutating func add(_ name: String, _ value: Bool) {
        self.members.append("\(Self.quoted(name)):\(value)")
    }

    mutating func add(_ name: String, _ value: JSONValue) {
        self.members.append("\(Self.quoted(name)):\(value.text())")
    }

    mutating func add(_ name: String, object: JSONLine) {
        self.members.append("\(Self.quoted(name)):\(object.object)")
    }

    /// Adds `body` as text if the bytes are UTF-8, else `bodyBase64`.
    mutating func addBody(_ bytes: ByteBuffer) {
        if let text = bytes.utf8Text {
            self.add("body", text)
        } else {
            self.add("bodyBase64", bytes.base64)
        }
    }

    /// The object and a newline.
    var line: String { "\(self.object)\n" }

    private var object: String { "{\(self.members.joined(separator: ","))}" }

    static func quoted(_ text: String) -> String { text.quotedInJSON }
}

extension ByteBuffer {
    var base64: String { Data(self.readableBytesView).base64EncodedString() }
}
