// SPDX-License-Identifier: Apache-2.0
import InstrumentedHHSocketFormats
import NIOCore

@testable import InstrumentedHHSocketLink

/// Any bytes as the JSON description of a layout.
enum DescriptionFuzz {
    static func run(_ bytes: [UInt8]) {
        do throws(WireFormatError) {
            let format = try WireFormat(json: bytes)
            self.checkThatItSurvives(format)
        } catch {
            require(!"\(error)".isEmpty, "a refusal without a reason")
        }
    }

    static func checkThatItSurvives(_ format: WireFormat) {
        do throws(WireFormatError) {
            let again = try WireFormat(json: Array(format.json.utf8))
            require(again == format, "\(format.json) became \(again.json)")
        } catch {
            fatalError("\(format.json) was refused: \(error)")
        }
        // A layout with a description can be used.
        for direction in [FrameDirection.request, .response] {
            let (plan, header) = (format.plan(for: direction), format.layout.header(direction))
            let serial = min(100, header.number(of: .serial)?.largest ?? 0)
            let type = plan.hasType ? min(100, header.number(of: .type)?.largest ?? 0) : plan.impliedType(serial)
            let payload = ByteBuffer(string: String("payload".prefix(plan.largestPayload)))
            let frame = Frame(type: type, serial: serial, payload: payload)
            var bytes = ByteBuffer()
            FrameEncoder(direction: direction, format: format).encode(frame, into: &bytes)
            var decoder = FrameDecoder(direction: direction, format: format)
            decoder.append(bytes)
            do throws(FrameError) {
                guard case .frame(let decoded)? = try decoder.next() else { fatalError("no frame in \(format.json)") }
                require(decoded == frame || decoded.customFields != nil, "\(frame) became \(decoded)")
                require(decoded.payload == payload && decoded.type == type && decoded.serial == serial, "\(decoded)")
            } catch {
                fatalError("\(error) in \(format.json)")
            }
        }
    }
}
