// SPDX-License-Identifier: Apache-2.0
import HHSocketFoundation
public import HHSocketLink

// Described in Docs/WireFormat.md, and by Docs/WireFormat.schema.json.

extension WireFormat: Codable {
    public init(from decoder: any Decoder) throws {
        try self.init(LayoutDescription(from: decoder).layout)
    }

    /// - Throws: `EncodingError` for a format made of a ``/HHSocket/FrameCodec``, which is no data.
    public func encode(to encoder: any Encoder) throws {
        guard !self.hasCodec else {
            throw EncodingError.invalidValue(
                self,
                .init(
                    codingPath: encoder.codingPath,
                    debugDescription: "the wire format \(self) uses a FrameCodec, which cannot be written as data"
                )
            )
        }
        try LayoutDescription(self.layout).encode(to: encoder)
    }

    /// Reads a layout from JSON, as `Docs/WireFormat.md` describes it.
    ///
    /// - Throws: ``/HHSocket/WireFormatError``, which names the place at which the JSON is invalid (`malformed`), or
    ///   the rule that the layout violates.
    public init(json: some Sequence<UInt8>) throws(WireFormatError) {
        do {
            self = try JSONDecoder().decode(WireFormat.self, from: Data(json))
        } catch let error as WireFormatError {
            throw error
        } catch let error as DecodingError {
            throw WireFormatError(.malformed, Self.message(of: error))
        } catch {
            throw WireFormatError(.malformed, "the description of a wire format cannot be read: \(error)")
        }
    }

    /// The layout as JSON, for ``init(json:)``. Of a format made of a ``/HHSocket/FrameCodec``, which is no data, `{}`:
    /// no format can be made of it.
    public var json: String {
        guard !self.hasCodec else { return "{}" }
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
        guard let data = try? encoder.encode(self) else {
            assertionFailure("a layout is nothing but texts and numbers")
            return "{}"
        }
        return String(decoding: data, as: UTF8.self)
    }

    private static func message(of error: DecodingError) -> String {
        func location(_ context: DecodingError.Context) -> String {
            let path = context.codingPath.map { $0.intValue.map(String.init) ?? $0.stringValue }
            return path.isEmpty ? "" : " at \(path.joined(separator: "."))"
        }
        switch error {
        case .keyNotFound(let key, let context):
            return "the description of the wire format has no \(key.stringValue)\(location(context))"
        case .typeMismatch(let type, let context):
            return "the description of the wire format is wrong\(location(context)): expected \(Self.kind(of: type))"
        case .valueNotFound(let type, let context):
            return
                "the description of the wire format is wrong\(location(context)): expected "
                + "\(Self.kind(of: type)), found null"
        case .dataCorrupted(let context):
            return "the description of the wire format is wrong\(location(context)): \(context.debugDescription)"
        @unknown default:
            return "the description of the wire format is wrong: \(error)"
        }
    }

    /// The kind of JSON that a decoder expected for a type. Numbers and booleans are missing: they are read by types
    /// with their own errors.
    private static func kind(of type: any Any.Type) -> String {
        let name = "\(type)"
        if name.hasPrefix("String") { return "a text" }
        if name.hasPrefix("Array") { return "a list" }
        if name.hasPrefix("Dictionary") { return "an object" }
        return "another kind of value"
    }
}

/// Any key, so that unknown keys can be refused: a misspelt key must not go unnoticed.
struct AnyKey: CodingKey, ExpressibleByStringLiteral {
    var stringValue: String
    var intValue: Int? { nil }

    init(_ stringValue: String) { self.stringValue = stringValue }
    init(stringLiteral: String) { self.stringValue = stringLiteral }
    init?(stringValue: String) { self.stringValue = stringValue }
    init?(intValue: Int) { nil }
}

extension Decoder {
    /// The error for a value at this place.
    func wrong(_ complaint: String) -> DecodingError {
        .dataCorrupted(.init(codingPath: self.codingPath, debugDescription: complaint))
    }
}

extension KeyedDecodingContainer<AnyKey> {
    /// The error for a value at this place, or at one of its keys.
    func wrong(_ key: String? = nil, _ complaint: String) -> DecodingError {
        .dataCorrupted(
            .init(codingPath: self.codingPath + (key.map { [AnyKey($0)] } ?? []), debugDescription: complaint)
        )
    }

    func allow(_ keys: String...) throws {
        for key in self.allKeys where !keys.contains(key.stringValue) {
            throw self.wrong(
                nil,
                "the key \"\(key.stringValue)\" is unknown; the keys here are \(keys.joined(separator: ", "))"
            )
        }
    }

    /// An element of a set of names.
    func choice<Choice: RawRepresentable & CaseIterable>(
        _ key: String,
        as type: Choice.Type = Choice.self
    ) throws -> Choice? where Choice.RawValue == String {
        guard let name = try self.optional(key, as: String.self) else { return nil }
        if let choice = Choice(rawValue: name) { return choice }
        let names = Choice.allCases.map { "\"\($0.rawValue)\"" }.joined(separator: ", ")
        throw self.wrong(key, "\"\(name)\" is unknown; the values are \(names)")
    }

    func neededChoice<Choice: RawRepresentable & CaseIterable>(_ key: String) throws -> Choice
    where Choice.RawValue == String {
        if let choice: Choice = try self.choice(key) { return choice }
        throw DecodingError.keyNotFound(
            AnyKey(key),
            .init(codingPath: self.codingPath, debugDescription: "the key \"\(key)\" is missing")
        )
    }

    func value<T: Decodable>(_ key: String, as type: T.Type = T.self) throws -> T {
        try self.decode(T.self, forKey: AnyKey(key))
    }

    func optional<T: Decodable>(_ key: String, as type: T.Type = T.self) throws -> T? {
        try self.decodeIfPresent(T.self, forKey: AnyKey(key))
    }

    func word(_ key: String) throws -> UInt32? {
        try self.optional(key, as: Word.self)?.value
    }

    func range(_ key: String) throws -> ClosedRange<UInt32>? {
        guard let words = try self.optional(key, as: [Word].self)?.map(\.value) else { return nil }
        guard words.count == 2, words[0] <= words[1] else {
            throw self.wrong(key, "expected [first, last], with the first no larger than the last")
        }
        return words[0]...words[1]
    }
}

/// 32 bits: a number, or a text such as "0x1FFFFFFF".
struct Word: Decodable {
    var value: UInt32

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if let text = try? container.decode(String.self) {
            guard text.hasPrefix("0x"), let value = UInt32(text.dropFirst(2), radix: 16) else {
                throw decoder.wrong("\(text) is not a number of 32 bits in hexadecimal digits after 0x")
            }
            self.value = value
        } else if let value = try? container.decode(UInt32.self) {
            self.value = value
        } else {
            throw decoder.wrong("expected a number from 0 to \(UInt32.max), or a text such as \"0x1F\"")
        }
    }
}

/// A number of bytes.
struct ByteCount: Decodable {
    var value: Int

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        guard let value = try? container.decode(Int.self) else {
            throw decoder.wrong("expected a number of bytes")
        }
        self.value = value
    }
}

extension ClosedRange<UInt32> {
    fileprivate var bounds: [UInt32] { [self.lowerBound, self.upperBound] }
}

/// A layout in JSON: an object.
private struct LayoutDescription: Codable {
    var layout: WireFormat.Layout

    init(_ layout: WireFormat.Layout) {
        self.layout = layout
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: AnyKey.self)
        try container.allow(
            "name",
            "order",
            "request",
            "response",
            "lengthCounts",
            "checksum",
            "tail",
            "bodyEnd",
            "applicationTypes",
            "requestSerials",
            "okStatus",
            "statuses",
            "heartbeat",
            "push",
            "cancel",
            "$schema"
        )
        // For editors.
        _ = try container.optional("$schema", as: String.self)
        let order: WireFormat.ByteOrder = try container.choice("order") ?? .big
        func fields(_ key: String) throws -> [WireFormat.Field] {
            try container.value(key, as: [FieldDescription].self).map { $0.field(order) }
        }
        self.layout = WireFormat.Layout(
            name: try container.optional("name") ?? "custom",
            request: try fields("request"),
            response: try fields("response"),
            lengthCounts: try container.choice("lengthCounts") ?? .payload,
            checksum: try container.optional("checksum", as: ChecksumDescription.self)?.checksum(order),
            tail: try container.optional("tail", as: TailDescription.self)?.order(order),
            bodyEnd: try container.optional("bodyEnd", as: BytesDescription.self)?.bytes,
            applicationTypes: try container.range("applicationTypes"),
            requestSerials: try container.range("requestSerials"),
            okStatus: try container.word("okStatus") ?? Status.ok.rawValue,
            statuses: try container.optional("statuses", as: StatusesDescription.self)?.statuses ?? [:],
            heartbeat: try container.optional("heartbeat", as: HeartbeatDescription.self)?.heartbeat,
            push: try container.optional("push", as: PushDescription.self)?.push,
            cancel: try container.optional("cancel", as: CancelDescription.self)?.cancel
        )
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: AnyKey.self)
        try container.encode(self.layout.name, forKey: "name")
        try container.encode(self.layout.request.map(FieldDescription.init), forKey: "request")
        try container.encode(self.layout.response.map(FieldDescription.init), forKey: "response")
        try container.encode(self.layout.lengthCounts, forKey: "lengthCounts")
        try container.encodeIfPresent(self.layout.checksum.map(ChecksumDescription.init), forKey: "checksum")
        try container.encodeIfPresent(self.layout.tail, forKey: "tail")
        try container.encodeIfPresent(self.layout.bodyEnd.map(BytesDescription.init), forKey: "bodyEnd")
        try container.encode(self.layout.applicationTypes.bounds, forKey: "applicationTypes")
        try container.encode(self.layout.requestSerials.bounds, forKey: "requestSerials")
        try container.encode(self.layout.okStatus, forKey: "okStatus")
        if !self.layout.statuses.isEmpty {
            try container.encode(StatusesDescription(statuses: self.layout.statuses), forKey: "statuses")
        }
        try container.encodeIfPresent(self.layout.heartbeat.map(HeartbeatDescription.init), forKey: "heartbeat")
        try container.encodeIfPresent(self.layout.push.map(PushDescription.init), forKey: "push")
        try container.encodeIfPresent(self.layout.cancel.map(CancelDescription.init), forKey: "cancel")
    }
}

/// A checksum in JSON: `"crc32c"`, or `{"algorithm": "adler32", "bytes": 8, "order": "big"}`.
private struct ChecksumDescription: Codable {
    var algorithm: WireFormat.Checksum.Algorithm
    var bytes: Int
    var order: WireFormat.ByteOrder?

    init(_ checksum: WireFormat.Checksum) {
        self.algorithm = checksum.algorithm
        self.bytes = checksum.width
        self.order = checksum.order
    }

    func checksum(_ order: WireFormat.ByteOrder) -> WireFormat.Checksum {
        WireFormat.Checksum(self.algorithm, width: self.bytes, self.order ?? order)
    }

    init(from decoder: any Decoder) throws {
        if let name = try? decoder.singleValueContainer().decode(String.self) {
            guard let algorithm = WireFormat.Checksum.Algorithm(rawValue: name) else {
                throw decoder.wrong("there is no checksum \"\(name)\"; there are adler32, crc32 and crc32c")
            }
            self.algorithm = algorithm
            self.bytes = 4
            return
        }
        let container = try decoder.container(keyedBy: AnyKey.self)
        try container.allow("algorithm", "bytes", "order")
        self.algorithm = try container.neededChoice("algorithm")
        self.bytes = try container.optional("bytes", as: ByteCount.self)?.value ?? 4
        self.order = try container.choice("order")
    }
}

/// A tail in JSON: true or false, or a byte order.
private struct TailDescription: Decodable {
    private var order: WireFormat.ByteOrder?
    private var exists: Bool

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if let exists = try? container.decode(Bool.self) {
            self.exists = exists
        } else {
            guard let order = (try? container.decode(String.self)).flatMap(WireFormat.ByteOrder.init) else {
                throw decoder.wrong("expected true, false, \"big\" or \"little\"")
            }
            self.exists = true
            self.order = order
        }
    }

    func order(_ order: WireFormat.ByteOrder) -> WireFormat.ByteOrder? {
        self.exists ? self.order ?? order : nil
    }
}

/// A heartbeat in JSON, such as `{"type": 1, "pingedBy": "client"}`.
private struct HeartbeatDescription: Codable {
    var heartbeat: WireFormat.Heartbeat

    init(_ heartbeat: WireFormat.Heartbeat) {
        self.heartbeat = heartbeat
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: AnyKey.self)
        try container.allow("type", "answerType", "pingedBy", "clientSerial", "serverSerial", "serials", "pingStatus")
        self.heartbeat = WireFormat.Heartbeat(
            type: try container.value("type", as: Word.self).value,
            answerType: try container.word("answerType"),
            pingedBy: try container.neededChoice("pingedBy"),
            clientSerial: try container.word("clientSerial") ?? FrameSerial.clientPing,
            serverSerial: try container.word("serverSerial") ?? FrameSerial.serverPing,
            serials: try container.range("serials"),
            pingStatus: try container.word("pingStatus").map(Status.init) ?? .ping
        )
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: AnyKey.self)
        try container.encode(self.heartbeat.type, forKey: "type")
        try container.encodeIfPresent(self.heartbeat.answerType, forKey: "answerType")
        try container.encode(self.heartbeat.pingedBy, forKey: "pingedBy")
        try container.encode(self.heartbeat.clientSerial, forKey: "clientSerial")
        try container.encode(self.heartbeat.serverSerial, forKey: "serverSerial")
        try container.encodeIfPresent(self.heartbeat.serials.map(\.bounds), forKey: "serials")
        try container.encode(self.heartbeat.pingStatus.rawValue, forKey: "pingStatus")
    }
}

/// The mark of pushes in JSON, such as `{"serial": 0}` or `{"types": [2000, 2999]}`.
private struct PushDescription: Codable {
    var push: WireFormat.Push

    init(_ push: WireFormat.Push) {
        self.push = push
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: AnyKey.self)
        if let types = try container.range("types") {
            try container.allow("types", "serial")
            self.push = WireFormat.Push(types: types, serial: try container.word("serial") ?? 0)
        } else if let flag = try container.word("flag") {
            try container.allow("flag", "mask", "serial")
            self.push = WireFormat.Push(
                flag: flag,
                mask: try container.word("mask"),
                serial: try container.word("serial") ?? 0
            )
        } else if let serials = try container.range("serials") {
            try container.allow("serials")
            self.push = WireFormat.Push(serials: serials)
        } else if let serial = try container.word("serial") {
            try container.allow("serial")
            self.push = WireFormat.Push(serial: serial)
        } else {
            try container.allow("serial", "serials", "types", "flag", "mask")
            throw container.wrong(nil, "a push is known by one of the keys serial, serials, types, flag")
        }
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: AnyKey.self)
        switch self.push.mark {
        case .serials(let serials):
            guard serials.count > 1 else { return try container.encode(self.push.serial, forKey: "serial") }
            try container.encode(serials.bounds, forKey: "serials")
        case .types(let types):
            try container.encode(types.bounds, forKey: "types")
            try container.encode(self.push.serial, forKey: "serial")
        case .flag(let flag, let mask):
            try container.encode(flag, forKey: "flag")
            try container.encode(mask, forKey: "mask")
            try container.encode(self.push.serial, forKey: "serial")
        }
    }
}

/// A cancel in JSON: `{"type": 3}`.
private struct CancelDescription: Codable {
    var cancel: WireFormat.Cancel

    init(_ cancel: WireFormat.Cancel) {
        self.cancel = cancel
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: AnyKey.self)
        try container.allow("type")
        self.cancel = WireFormat.Cancel(type: try container.value("type", as: Word.self).value)
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: AnyKey.self)
        try container.encode(self.cancel.type, forKey: "type")
    }
}
