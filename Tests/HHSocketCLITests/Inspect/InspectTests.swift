// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import NIOCore
import TestSupport
import Testing

@testable import HHSocketCLI

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct InspectTests {
    /// type 1000, serial 50, "hello"
    static let request: [UInt8] = [
        0, 0, 3, 0xE8, 0, 0, 0, 50, 0, 0, 0, 5, 0x68, 0x65, 0x6C, 0x6C, 0x6F, 0x06, 0x2C, 0x02, 0x15,
    ]
    /// type 1000, serial 50, status 404, no payload
    static let response: [UInt8] = [
        0, 0, 3, 0xE8, 0, 0, 0, 50, 0, 0, 1, 0x94, 0, 0, 0, 0, 0, 0, 0, 1,
    ]
    static let requestLine = "request  offset 0  type 1000  serial 50  status -  length 5  checksum right"

    @Test func framesOfAFileOrOfStdinAreALineEach() async throws {
        let bytes = Data(Self.request + Self.request)
        let lines = [Self.requestLine, Self.requestLine.replacingOccurrences(of: "offset 0", with: "offset 21")]
        let file = FileManager.default.temporaryDirectory.appendingPathComponent("\(UUID()).frames")
        try bytes.write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }
        for outcome in [
            try await Command.run(["inspect", file.path]),
            try await Command.run(["inspect", "-"], input: bytes),
        ] {
            #expect(outcome.exitCode == 0)
            #expect(outcome.lines == lines)
            #expect(outcome.errors == "")
        }
        let nothing = try await Command.run(["inspect", "-"])
        #expect(nothing.exitCode == 0 && nothing.output.isEmpty)
    }

    @Test func responsesHaveAStatus() async throws {
        let outcome = try await Command.run(
            ["inspect", "-", "--direction", "response"],
            input: Data(Self.response)
        )
        #expect(outcome.exitCode == 0)
        #expect(outcome.lines == ["response  offset 0  type 1000  serial 50  status 404  length 0  checksum right"])
    }

    /// Payloads of a method, of an undeclared type, and one that is not the declared message.
    @Test func payloadsOfDeclaredTypesAreShownInJSON() async throws {
        var frames = ByteBuffer()
        func add(_ type: UInt32, _ payload: [UInt8]) {
            let frame = Frame(type: type, serial: 7, payload: ByteBuffer(bytes: payload))
            FrameEncoder(direction: .request).encode(frame, into: &frames)
        }
        // The text of a leaf.
        add(1001, [0x0A, 0x01, 0x61])
        add(1002, [0x0A, 0x01, 0x61])
        add(1001, [0x0A, 0x05])
        let outcome = try await Command.run(
            ["inspect", "-", "--proto", TestProtos.descriptorSet],
            input: Data(frames.readableBytesView)
        )
        #expect(outcome.exitCode == 0)
        #expect(outcome.lines.count == 5)
        #expect(outcome.lines.dropFirst().first == #"  {"text":"a"}"#)
        #expect(outcome.lines.last?.hasPrefix("  not a test.Leaf: test.Leaf: the bytes end within a field") == true)
    }

    @Test func wrongChecksumIsReportedAndTheRestIsShown() async throws {
        var wrong = Self.request
        wrong[20] ^= 1
        let bytes = Data(wrong + wrong + wrong + wrong + Self.request)
        let outcome = try await Command.run(["inspect", "-"], input: bytes)
        #expect(outcome.exitCode == 1)
        #expect(outcome.lines.count == 5)
        #expect(outcome.lines[0].hasSuffix("checksum wrong (received 0x062C0214, computed 0x062C0215)"))
        #expect(outcome.lines[4].hasSuffix("offset 84  type 1000  serial 50  status -  length 5  checksum right"))
    }

    @Test func jsonHasTheSameFactsAndBothChecksums() async throws {
        var wrong = Self.request
        wrong[20] ^= 1
        let requests = try await Command.run(["inspect", "-", "--json"], input: Data(Self.request + wrong))
        let facts = #""type":1000,"serial":50,"length":5"#
        #expect(
            requests.lines == [
                #"{"direction":"request","offset":0,\#(facts),"checksum":"right"}"#,
                #"{"direction":"request","offset":21,\#(facts),"checksum":"wrong","received":"0x062C0214","computed":"0x062C0215"}"#,
            ]
        )
        let response = try await Command.run(
            ["inspect", "-", "--json", "--direction", "response"],
            input: Data(Self.response)
        )
        #expect(
            response.lines == [
                #"{"direction":"response","offset":0,"type":1000,"serial":50,"status":404,"length":0,"checksum":"right"}"#
            ]
        )
        var frames = ByteBuffer()
        for payload: [UInt8] in [[0x0A, 0x01, 0x61], [0x0A, 0x05]] {
            let frame = Frame(type: 1001, serial: 7, payload: ByteBuffer(bytes: payload))
            FrameEncoder(direction: .request).encode(frame, into: &frames)
        }
        let messages = try await Command.run(
            ["inspect", "-", "--json", "--proto", TestProtos.descriptorSet],
            input: Data(frames.readableBytesView)
        )
        #expect(messages.lines.count == 2)
        #expect(messages.lines.first?.hasSuffix(#""checksum":"right","message":{"text":"a"}}"#) == true)
        #expect(messages.lines.last?.contains(#""error":"not a test.Leaf: "#) == true)
    }

    @Test func eachStretchThatIsNoFrameIsReportedWhereFramesHaveSeparators() async throws {
        let stream = "1000-50-5-\r\nhello-\r\n1000-51-4-\r\nhello-\r\n12345-\r\n1000-52-0-\r\n-\r\n"
        let outcome = try await Command.run(["inspect", "-", "--format", "separated"], input: Data(stream.utf8))
        #expect(outcome.exitCode == 1)
        #expect(
            outcome.lines == [
                "request  offset 0  type 1000  serial 50  status -  length 5  checksum none",
                "request  offset 48  type 1000  serial 52  status -  length 0  checksum none",
            ]
        )
        let errors = outcome.errorLines
        #expect(errors.count == 3)
        #expect(
            errors.first?.hasPrefix("error: at offset 20: a frame of type 1000, serial 51 with a length of 4") == true
        )
        #expect(errors.dropFirst().first?.hasPrefix("error: at offset 40: a header has the bytes 0D") == true)
        #expect(errors.last == "2 stretches are no frame")
        // The stream ends within a stretch, and within a frame.
        let garbage = try await Command.run(["inspect", "-", "--format", "separated"], input: Data("x-y".utf8))
        #expect(garbage.errorLines.count == 2 && garbage.errorLines.last == "1 stretch is no frame")
        let cut = try await Command.run(["inspect", "-", "--format", "separated"], input: Data(stream.utf8.dropLast()))
        #expect(cut.errors.contains("error: at offset 48: the stream ends in the middle of a frame, 14 bytes into it"))
    }

    @Test func endOfSenseIsReportedWithItsOffsetAndReason() async throws {
        let tooLong: [UInt8] = [0, 0, 3, 0xE8, 0, 0, 0, 51, 0xFF, 0, 0, 0]
        let wild = try await Command.run(["inspect", "-"], input: Data(Self.request + tooLong + Self.request))
        #expect(wild.exitCode == 1)
        #expect(wild.lines == [Self.requestLine])
        #expect(wild.errors.hasPrefix("error: at offset 21: "))
        #expect(wild.errors.contains("4278190080"))
        let cut = try await Command.run(["inspect", "-"], input: Data(Self.request + Self.request.prefix(10)))
        #expect(cut.exitCode == 1)
        #expect(cut.lines == [Self.requestLine])
        #expect(cut.errors == "error: at offset 21: the stream ends in the middle of a frame, 10 bytes into it\n")
    }

    @Test(arguments: [
        "000003e8 00000032 00000005 68656c6c 6f062c02 15",
        "00 00 03 e8 00 00 00 32\n00 00 00 05 68 65 6C 6c\n\n6f062c0215\n",
        "0x00,0x00,0x03,0xE8,0x00,0x00,0x00,0x32,0x00,0x00,0x00,0x05,0x68656c6c6f,0x062c0215",
        "00000000: 0000 03e8 0000 0032 0000 0005 6865 6c6c  .......2....hell\n00000010: 6f06 2c02 15                             o.,..\n",
        "00000000  00 00 03 e8 00 00 00 32  00 00 00 05 68 65 6c 6c  |.......2....hell|\n00000010  6f 06 2c 02 15                                    |o.,..|\n00000015\n",
        "\t0x0000:  0000 03e8 0000 0032 0000 0005 6865 6c6c\n\t0x0010:  6f06 2c02 15\n",
    ])
    func hexDumpsOfAllKinds(dump: String) async throws {
        let outcome = try await Command.run(["inspect", "-", "--hex"], input: Data(dump.utf8))
        #expect(outcome.errors == "")
        #expect(outcome.lines == [Self.requestLine])
        #expect(outcome.exitCode == 0)
    }

    @Test func invalidHexIsReportedWithItsLine() async throws {
        for dump in ["00 00\n0g", "00 00\n123", "00000000  00 00\n*\n"] {
            let outcome = try await Command.run(["inspect", "-", "--hex"], input: Data(dump.utf8))
            #expect(outcome.exitCode == 1)
            #expect(outcome.errors.hasPrefix("error: line 2 of the hex dump: "))
        }
    }

    @Test(arguments: [[], ["--hex"]]) func aFileThatCannotBeReadIsAFailureThatNamesIt(options: [String]) async throws {
        let folder = try TemporaryFolder()
        for file in ["/no/such/file", folder.path] {
            let outcome = try await Command.run(["inspect", file] + options)
            #expect(outcome.exitCode == 1)
            #expect(outcome.output.isEmpty)
            #expect(outcome.errors.hasPrefix("error: Cannot read \(file): "), "\(outcome.errors)")
            #expect(outcome.errorLines.count == 1)
        }
    }

    @Test func otherFormats() async throws {
        let mars: [UInt8] = [0, 0, 0, 20, 0, 0, 0, 200, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 2, 0x68, 0x69]
        let outcome = try await Command.run(["inspect", "-", "--format", "mars"], input: Data(mars))
        #expect(outcome.exitCode == 0)
        #expect(outcome.lines == ["request  offset 0  type 7  serial 9  status -  length 2  checksum none"])
    }

    @Test(arguments: [
        ["inspect"], ["inspect", "-", "--direction", "sideways"],
        ["inspect", "-", "--format", "morse"], ["call", "127.0.0.1:1", "--type", "100", "--format", "/no/such/file"],
        ["call", "127.0.0.1:1", "--type", "6", "--format", "mars"],
        ["serve", "--port", "0", "--format", "mars", "--ping", "1"],
    ])
    func wrongUsageIs64(arguments: [String]) async throws {
        let outcome = try await WrongUsage(parsing: arguments)
        #expect(outcome.exitCode == 64)
        #expect(outcome.output.isEmpty)
        #expect(!outcome.errors.isEmpty)
    }
}
