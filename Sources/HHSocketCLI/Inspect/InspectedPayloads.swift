// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import NIOCore

/// The payloads of recorded frames as the messages that a `.proto` declares.
struct InspectedPayloads {
    private let schema: ProtoSchema
    private let codec: PayloadJSON

    init(_ schema: ProtoSchema) {
        self.schema = schema
        self.codec = PayloadJSON(schema)
    }

    enum Message {
        case json(JSONValue)
        /// The payload is not the declared message, for this reason.
        case unreadable(String)
    }

    /// Returns the message in a frame; nil for frames without one: those of other types, and responses that report an
    /// error.
    func message(in frame: FrameDecoder.View, _ direction: FrameDirection) -> Message? {
        guard let name = self.name(of: frame, direction) else { return nil }
        do throws(PayloadJSON.Unsuitable) {
            return .json(try self.codec.json(ByteBuffer(bytes: frame.payload), message: name).json)
        } catch {
            return .unreadable("not a \(name): \(error.description.inOneLine)")
        }
    }

    /// The full name of the message in a frame.
    private func name(of frame: FrameDecoder.View, _ direction: FrameDirection) -> String? {
        guard frame.mismatch == nil else { return nil }
        let method = self.schema.services.lazy.flatMap(\.methods).first { $0.type == frame.type }
        switch direction {
        case .request: return method?.request
        case .response:
            guard frame.status == .ok else { return nil }
            return method?.response ?? self.schema.push(frame.type)?.name
        }
    }
}
