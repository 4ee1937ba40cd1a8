import InstrumentedHHSocket
import NIOCore

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
        // Whatever can be described can be used.
        for direction in [FrameDirection.request, .response] {
            let frame = Frame(type: 100, serial: 100, payload: ByteBuffer(string: "payload"))
            var bytes = ByteBuffer()
            FrameEncoder(direction: direction, format: format).encode(frame, into: &bytes)
            var decoder = FrameDecoder(direction: direction, format: format)
            decoder.append(bytes)
            do throws(FrameError) {
                guard case .frame(let decoded)? = try decoder.next() else { fatalError("no frame in \(format.json)") }
                require(decoded.payload == frame.payload && decoded.type == 100 && decoded.serial == 100, "\(decoded)")
            } catch {
                fatalError("\(error) in \(format.json)")
            }
        }
    }
}
