// SPDX-License-Identifier: Apache-2.0
import CProtobufC
public import CWeather
import Foundation
import HHSocketMessage
public import HHSocketProtobufC
import NIOCore
import TestSupport
import Testing

extension Weather__Report: ProtobufCStructure {
    public static func initialize(_ report: UnsafeMutablePointer<Self>?) { weather__report__init(report) }
}

extension Weather__Station: ProtobufCStructure {
    public static func initialize(_ station: UnsafeMutablePointer<Self>?) { weather__station__init(station) }
}

/// Structures of C as bodies: valid messages, and untrusted bytes.
@Suite struct CMessageTests {
    /// The bytes of a report with a value of each kind.
    private static let bytes: [UInt8] = [
        // station: its name, and an empty neighbour.
        0x0A, 0x05, 0x0A, 0x01, 0x5A, 0x22, 0x00,
        // temperature 1.5, gusts 1 and 2.
        0x11, 0, 0, 0, 0, 0, 0, 0xF8, 0x3F, 0x1A, 0x08, 0, 0, 0x80, 0x3F, 0, 0, 0, 0x40,
        // sky, a remark, visibility -2, snow 3.
        0x22, 0x02, 0xFF, 0x00, 0x2A, 0x06, 0x0A, 0x01, 0x61, 0x12, 0x01, 0x62, 0x30, 0x03, 0x40, 0x03,
    ]

    private func message<Structure>(
        _ bytes: [UInt8],
        as type: Structure.Type = Weather__Report.self
    ) throws -> CMessage<Structure> {
        try bytes.withUnsafeBytes { try CMessage(messageBytes: $0) }
    }

    @Test func structureHasWhatTheBytesSay() throws {
        let message = try self.message(Self.bytes)
        try message.withStructure { report in
            let station = try #require(report.pointee.station).pointee
            #expect(String(cString: station.name) == "Z")
            #expect(station.n_neighbours == 1)
            #expect(report.pointee.temperature == 1.5)
            #expect(Array(UnsafeBufferPointer(start: report.pointee.gusts, count: report.pointee.n_gusts)) == [1, 2])
            #expect(report.pointee.sky.len == 2)
            #expect(report.pointee.visibility == -2)
            #expect(report.pointee.precipitation_case == WEATHER__REPORT__PRECIPITATION_SNOW)
            #expect(report.pointee.snow == 3)
        }
        #expect(CMessage<Weather__Report>.protoMessageName == "weather.Report")
    }

    @Test func messageThatWasReadIsWrittenTheSame() throws {
        // With a field that is unknown to the structure, which the library keeps.
        let bytes = Self.bytes + [0x92, 0x03, 0x01, 0x78]
        #expect(try self.message(bytes).messageBuffer() == ByteBuffer(bytes: bytes))
    }

    @Test func structureOfTheCallerIsPackedAtOnce() throws {
        var report = Weather__Report()
        weather__report__init(&report)
        report.temperature = 1.5
        let message = try CMessage(packing: &report)
        report.temperature = 2
        #expect(try message.messageBuffer() == ByteBuffer(bytes: [0x11, 0, 0, 0, 0, 0, 0, 0xF8, 0x3F]))
        try message.withStructure { #expect($0.pointee.temperature == 1.5) }
        #expect(try message.withMessageBytes { $0.count } == 9)
    }

    @Test func structureWithoutItsDescriptorIsRefused() throws {
        var report = Weather__Report()
        #expect(throws: MessageError.self) { try CMessage(packing: &report) }
    }

    private func expect(_ reason: MessageError.Reason, from bytes: [UInt8]) {
        let error = #expect(throws: MessageError.self) { try self.message(bytes) }
        #expect(error?.reason == reason)
    }

    @Test func malformedReportIsATypedError() {
        self.expect(.truncated, from: Array(Self.bytes.dropLast()))
        self.expect(.malformedVarint, from: [0x30] + [UInt8](repeating: 0xFF, count: 11))
        self.expect(.illegalTag, from: [0x07])
        self.expect(.group, from: [0x9B, 0x06, 0x9C, 0x06])
        self.expect(.invalidUTF8(field: "name"), from: [0x0A, 0x03, 0x0A, 0x01, 0xFF])
        // temperature as a varint.
        self.expect(.refusedByLibrary, from: [0x10, 0x01])
    }

    @Test func depthIsBounded() throws {
        func stations(_ depth: Int) -> [UInt8] {
            var bytes: [UInt8] = []
            for _ in 1..<depth {
                var length = UInt64(bytes.count)
                var header: [UInt8] = [0x22]
                repeat {
                    header.append(UInt8(length & 0x7F) | (length > 0x7F ? 0x80 : 0))
                    length >>= 7
                } while length > 0
                bytes = header + bytes
            }
            return bytes
        }
        _ = try self.message(stations(100), as: Weather__Station.self)
        let error = #expect(throws: MessageError.self) {
            try self.message(stations(101), as: Weather__Station.self)
        }
        #expect(error?.reason == .tooDeep(limit: 100))
        #expect(throws: MessageError.self) { try self.message(stations(2_000), as: Weather__Station.self) }
    }

    @Test func memoryIsBounded() {
        // A million empty stations, of some 80 bytes each.
        let bytes = (0..<1 << 20).flatMap { _ in [0x22, 0x00] as [UInt8] }
        let error = #expect(throws: MessageError.self) { try self.message(bytes, as: Weather__Station.self) }
        #expect(error?.reason == .needsTooMuchMemory(limit: 48 << 20))
    }

    /// With the address sanitizer: no access is out of bounds, and all memory is released.
    @Test func changedBytesAreAMessageOrATypedError() throws {
        var random = SeededGenerator(seed: 5)
        var (read, refused) = (0, 0)
        for _ in 0..<scaled(20_000) {
            var bytes = Self.bytes
            for _ in 0...Int.random(in: 0...2, using: &random) {
                guard let index = bytes.indices.randomElement(using: &random) else { continue }
                switch Int.random(in: 0...2, using: &random) {
                case 0: bytes[index] = UInt8.random(in: .min ... .max, using: &random)
                case 1: bytes.remove(at: index)
                default: bytes.removeLast(bytes.count - index)
                }
            }
            do {
                _ = try self.message(bytes).messageBuffer()
                read += 1
            } catch is MessageError {
                refused += 1
            }
        }
        #expect(read > 0 && refused > 0)
    }
}
