// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

extension STOMPFrame {
    /// The frame that sends a message.
    static func sending(
        _ body: ByteBuffer,
        to destination: String,
        headers: STOMPHeaders,
        contentType: String?,
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
