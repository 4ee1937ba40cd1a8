// SPDX-License-Identifier: Apache-2.0
import NIOCore

@testable import InstrumentedHHSocketLink

/// The end of a request at a server, including the bytes after its head, whatever read contained them.
struct ServerOutcome: Equatable {
    var head: OpeningRequestHead?
    var rest: [UInt8] = []
    var rejection: OpeningRejection?
    /// The number of bytes received when the outcome was clear.
    var needed = 0

    init(_ stream: ArraySlice<UInt8>, pieces sizes: [Int]) {
        var reader = OpeningRequestReader()
        for piece in Pieces(stream, sizes) {
            if self.head != nil {
                self.rest += piece
                continue
            }
            guard self.rejection == nil else { return }
            self.needed += piece.count
            reader.append(ByteBuffer(bytes: piece))
            do throws(OpeningRejection) {
                guard let head = try reader.next() else { continue }
                self.head = head
                self.rest = Array(reader.takeRest().readableBytesView)
            } catch {
                self.rejection = error
            }
        }
    }

    static func == (one: ServerOutcome, other: ServerOutcome) -> Bool {
        one.head == other.head && one.rest == other.rest && one.rejection == other.rejection
    }
}

/// The end of a client's opening, including the bytes after a 101, whatever read contained them.
struct ClientOutcome: Equatable {
    var result: OpeningResult?
    var rest: [UInt8] = []
    var error: OpeningError?
    var needed = 0

    /// - Parameter closes: Whether the connection ends after the stream.
    init(_ stream: ArraySlice<UInt8>, to request: OpeningRequest, now: Int64, pieces sizes: [Int], closes: Bool) {
        var reader = OpeningResponseReader(for: request)
        for piece in Pieces(stream, sizes) {
            if case .accepted? = self.result { self.rest += piece }
            guard self.result == nil, self.error == nil else { continue }
            self.needed += piece.count
            reader.append(ByteBuffer(bytes: piece))
            self.update { () throws(OpeningError) in try reader.next(now: now) }
        }
        if closes, self.result == nil, self.error == nil {
            self.update { () throws(OpeningError) in try reader.finish() }
        }
        guard self.result != nil else { return }
        let more = ((try? reader.next(now: now)) ?? nil) ?? ((try? reader.finish()) ?? nil)
        require(more == nil, "the result was followed by \(String(describing: more))")
    }

    private mutating func update(_ next: () throws(OpeningError) -> OpeningResult?) {
        do throws(OpeningError) {
            guard let result = try next() else { return }
            if case .accepted(let agreement, let rest) = result {
                self.rest = Array(rest.readableBytesView)
                self.result = .accepted(agreement, rest: ByteBuffer())
            } else {
                self.result = result
            }
        } catch {
            self.error = error
        }
    }

    static func == (one: ClientOutcome, other: ClientOutcome) -> Bool {
        one.result == other.result && one.rest == other.rest && one.error == other.error
    }
}
