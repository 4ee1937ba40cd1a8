// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// The headers of a frame, in their order. Names may be repeated and are case-sensitive; values are kept as received,
/// including leading and trailing spaces.
///
/// ```swift
/// var headers: STOMPHeaders = ["priority": "4"]
/// headers["persistent"] = "true"
/// headers.add(name: "priority", value: "9")
/// headers["priority"]                          // "4": the first counts
/// ```
///
/// Received headers stay raw bytes until they are read. Bytes that are not UTF-8 are repaired then: each invalid
/// sequence reads as U+FFFD. They are compared, and sent on, as received.
public struct STOMPHeaders: Sendable {
    /// A header in ``bytes``: its name, one byte between them, and its value.
    struct Field: Sendable {
        /// Offsets from the reader index.
        var start: Int
        /// The offset of the byte after the name.
        var colon: Int
        var end: Int
    }

    /// Names and values without escapes.
    private(set) var bytes: ByteBuffer
    private(set) var fields: [Field]

    /// - Parameter fields: Offsets within the readable bytes of `bytes`.
    init(bytes: ByteBuffer, fields: [Field]) {
        self.bytes = bytes
        self.fields = fields
    }

    /// Detaches them from the read that they may be a slice of. The offsets of the fields stay.
    mutating func detach() { self.bytes = self.bytes.detached }

    /// The memory that they keep once they are detached, in bytes.
    var memory: Int { self.bytes.detachedCapacity + self.fields.count * MemoryLayout<Field>.stride }

    /// Creates headers that are empty.
    package init() {
        self.init(bytes: ByteBuffer(), fields: [])
    }

    /// Creates headers of these names and values, in their order.
    package init(_ headers: some Sequence<(name: String, value: String)>) {
        self.init()
        for header in headers { self.add(name: header.name, value: header.value) }
    }

    /// Appends a header, even if one with its name exists.
    public mutating func add(name: String, value: String) {
        let start = self.bytes.readableBytes
        self.bytes.writeString(name)
        let colon = self.bytes.readableBytes
        self.bytes.writeInteger(UInt8(ascii: ":"))
        self.bytes.writeString(value)
        self.fields.append(Field(start: start, colon: colon, end: self.bytes.readableBytes))
    }

    /// The value of the first header with this name, which is the one that counts; nil if there is none.
    ///
    /// Setting a value replaces all headers with this name, at the position of the first; nil removes them.
    public subscript(name: String) -> String? {
        get { self.index(of: name).map { self.value($0) } }
        set {
            guard let first = self.index(of: name) else {
                if let newValue { self.add(name: name, value: newValue) }
                return
            }
            var replacement: Field?
            if let newValue {
                self.add(name: name, value: newValue)
                replacement = self.fields.popLast()
            }
            var next: Int? = self.index(of: name, from: first + 1)
            while let repeated = next {
                self.fields.remove(at: repeated)
                next = self.index(of: name, from: repeated)
            }
            if let replacement { self.fields[first] = replacement } else { self.fields.remove(at: first) }
        }
    }

    /// Returns the values of all headers with this name, in their order.
    package func values(of name: String) -> [String] {
        var values: [String] = []
        var next = self.index(of: name)
        while let index = next {
            values.append(self.value(index))
            next = self.index(of: name, from: index + 1)
        }
        return values
    }

    /// Returns whether there is a header with this name.
    package func contains(name: String) -> Bool { self.index(of: name) != nil }

    /// The bytes of the first value with this name; nil if there is none.
    package func bytes(of name: String) -> ByteBufferView? {
        guard let index = self.index(of: name) else { return nil }
        let field = self.fields[index]
        return self.bytes.viewBytes(
            at: self.bytes.readerIndex + field.colon + 1,
            length: field.end - field.colon - 1
        )
    }

    /// The first header with this name at or after a position.
    private func index(of name: String, from start: Int = 0) -> Int? {
        var name = name
        return name.withUTF8 { name in
            self.bytes.withUnsafeReadableBytes { bytes in
                (start..<Swift.max(start, self.fields.count)).first { index in
                    let field = self.fields[index]
                    return field.colon - field.start == name.count
                        && bytes[field.start..<field.colon].elementsEqual(name)
                }
            }
        }
    }

    private func name(_ index: Int) -> String {
        let field = self.fields[index]
        return self.text(field.start, field.colon)
    }

    private func value(_ index: Int) -> String {
        let field = self.fields[index]
        return self.text(field.colon + 1, field.end)
    }

    private func text(_ start: Int, _ end: Int) -> String {
        self.bytes.getString(at: self.bytes.readerIndex + start, length: end - start) ?? ""
    }

    /// Calls `body` with the bytes of each name and value, until it returns a result.
    func first<Result>(_ body: (_ name: Slice<UnsafeRawBufferPointer>, Slice<UnsafeRawBufferPointer>) -> Result?)
        -> Result?
    {
        self.bytes.withUnsafeReadableBytes { bytes in
            for field in self.fields {
                if let result = body(bytes[field.start..<field.colon], bytes[(field.colon + 1)..<field.end]) {
                    return result
                }
            }
            return nil
        }
    }
}

extension STOMPHeaders: RandomAccessCollection {
    public var startIndex: Int { 0 }

    public var endIndex: Int { self.fields.count }

    public subscript(position: Int) -> (name: String, value: String) { (self.name(position), self.value(position)) }
}

extension STOMPHeaders: ExpressibleByDictionaryLiteral {
    public init(dictionaryLiteral elements: (String, String)...) {
        self.init()
        for (name, value) in elements { self.add(name: name, value: value) }
    }
}

extension STOMPHeaders: Hashable {
    public static func == (one: STOMPHeaders, other: STOMPHeaders) -> Bool {
        guard one.fields.count == other.fields.count else { return false }
        return one.bytes.withUnsafeReadableBytes { bytes in
            other.bytes.withUnsafeReadableBytes { others in
                zip(one.fields, other.fields).allSatisfy { field, another in
                    bytes[field.start..<field.colon].elementsEqual(others[another.start..<another.colon])
                        && bytes[(field.colon + 1)..<field.end].elementsEqual(others[(another.colon + 1)..<another.end])
                }
            }
        }
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(self.fields.count)
        _ = self.first { name, value -> Never? in
            for part in [name, value] {
                hasher.combine(part.count)
                hasher.combine(bytes: UnsafeRawBufferPointer(rebasing: part))
            }
            return nil
        }
    }
}

extension STOMPHeaders: CustomStringConvertible {
    /// The headers on one line, with long values shortened and the values of `login` and `passcode` omitted.
    public var description: String {
        var shown: [String] = []
        _ = self.first { name, value -> Never? in
            let value = STOMPText.isSecret(name) ? "…" : STOMPText.shown(value)
            shown.append("\(STOMPText.shown(name)):\(value)")
            return nil
        }
        return shown.joined(separator: " ")
    }
}
