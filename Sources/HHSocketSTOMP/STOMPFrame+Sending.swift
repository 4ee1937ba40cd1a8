// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

extension STOMPFrame {
    /// The frame that sends a message.
    static func sending(
        _ body: ByteBuffer,
        to destination: String,
        _ headers: STOMPHeaders,
        _ contentType: String?,
        omitsContentLength: Bool = false
    ) -> STOMPFrame {
        var all: STOMPHeaders = ["destination": destination]
        if let contentType { all.add(name: "content-type", value: contentType) }
        for (name, value) in headers { all.add(name: name, value: value) }
        var frame = STOMPFrame(.send, all, body: body)
        frame.omitsContentLength = omitsContentLength
        return frame
    }
}

extension STOMPCore {
    /// Headers that the client sets itself.
    private static let reserved = ["receipt", "transaction"]

    /// The frame that sends a text.
    func sending(
        _ text: String,
        to destination: String,
        _ headers: STOMPHeaders,
        _ contentType: String?
    ) -> STOMPFrame {
        .sending(
            ByteBuffer(string: text),
            to: destination,
            headers,
            contentType,
            omitsContentLength: self.configuration.omitsContentLengthOfText
        )
    }

    /// Checks a frame of the user before the version is known.
    ///
    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument` for a frame that no version can carry.
    func check(_ frame: STOMPFrame) throws(SocketError) {
        if let name = Self.reserved.first(where: { frame.headers.contains(name: $0) }) {
            throw SocketError(
                .invalidArgument,
                message:
                    "the header \(name) of \(frame.command) is the client's own; ask for it by the method's arguments"
            )
        }
        if let refusal = STOMPEncoder.refusal(of: frame, version: .v1_2, limits: self.configuration.limits) {
            throw SocketError(.invalidArgument, message: "\(refusal)")
        }
    }
}

extension ByteBuffer {
    /// The text that the bytes are; nil if they are not UTF-8.
    var utf8Text: String? {
        var validator = UTF8Validator()
        guard self.withUnsafeReadableBytes({ validator.append($0) }), validator.isComplete else { return nil }
        return String(buffer: self)
    }
}

extension STOMPLimits {
    /// No limits, for frames that have been checked.
    static let unlimited: STOMPLimits = {
        var limits = STOMPLimits()
        limits.maximumHeaders = .max
        limits.maximumHeaderLength = .max
        limits.maximumBodyLength = .max
        return limits
    }()
}
