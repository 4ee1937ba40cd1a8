// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import NIOCore

struct InspectCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "inspect",
        abstract: "List the frames of a recorded stream.",
        discussion: """
            Prints one line per frame: direction, offset in bytes, type, serial, status (- in a request), length of the \
            payload, and whether the checksum is right. With --proto, a line in JSON follows for each frame whose type \
            belongs to a method or a push. If the bytes are no longer frames of the format, an error on \
            stderr gives the offset and the reason; in a format with separators each stretch that is not a frame is \
            reported, and reading continues after the next separator. The exit code is 0 if the whole stream was read and \
            every checksum was right, else 1.
            """
    )

    enum Direction: String, ExpressibleByArgument, CaseIterable {
        case request, response

        var frameDirection: FrameDirection {
            switch self {
            case .request: .request
            case .response: .response
            }
        }
    }

    @Argument(help: "The file; - is stdin.")
    var file: String

    @Flag(help: "The file is text: hex digits, or what xxd, hexdump -C or tcpdump -x print.")
    var hex = false

    @Flag(
        help: """
            Print one object per line: direction, offset, type, serial, of a response status, length, checksum (right, \
            wrong or none), of a wrong one received and computed, and with --proto message, or error if the payload is none.
            """
    )
    var json = false

    @Option(help: "The direction of the frames: request or response.")
    var direction = Direction.request

    @Option(help: FormatArgument.help, transform: FormatArgument.parse)
    var format = WireFormat.standard

    @OptionGroup var declarations: ProtoOptions

    func run() async throws {
        var inspector = FrameInspector(
            direction: self.direction.frameDirection,
            format: self.format,
            payloads: try self.declarations.schema().map { InspectedPayloads($0) },
            printsJSON: self.json
        )
        do {
            if self.hex {
                try await self.inspectText(&inspector)
            } else {
                let input = try Input.open(self.file)
                var piece = ByteBuffer()
                while try input.append(to: &piece) {
                    try self.inspect(piece, &inspector)
                    piece.clear()
                }
            }
            try inspector.finish()
        } catch let nonsense as FrameInspector.Nonsense {
            StandardError.line("error: \(nonsense)")
            throw ExitCode.failure
        } catch let malformed as HexDump.Malformed {
            StandardError.line("error: \(malformed)")
            throw ExitCode.failure
        }
        if inspector.malformedStretches > 0 {
            let count = inspector.malformedStretches
            StandardError.line("\(count) \(count == 1 ? "stretch is" : "stretches are") no frame")
        }
        if inspector.corruptFrames + inspector.malformedStretches > 0 { throw ExitCode.failure }
    }

    private func inspectText(_ inspector: inout FrameInspector) async throws {
        var dump = HexDump()
        let input = try Input.open(self.file)
        let lines = InputLines(input)
        while let line = try await lines.next() {
            guard case .bytes(let line) = line else {
                throw Input.Failure(input.name, "a line is longer than \(InputLines.maximumLength >> 20) MiB")
            }
            try self.inspect(ByteBuffer(bytes: dump.bytes(of: String(buffer: line))), &inspector)
        }
    }

    private func inspect(_ bytes: ByteBuffer, _ inspector: inout FrameInspector) throws {
        var findings: [FrameInspector.Finding] = []
        // The frames before an error are printed first.
        let result = bytes.withUnsafeReadableBytes { bytes in
            Result { try inspector.inspect(bytes) { findings.append($0) } }
        }
        var lines = ""
        func printLines() throws {
            if !lines.isEmpty { try StandardOutput.write(lines) }
            lines = ""
        }
        for finding in findings {
            switch finding {
            case .frame(let line):
                lines += line
            case .malformed(let nonsense):
                try printLines()
                StandardError.line("error: \(nonsense)")
            }
        }
        try printLines()
        try result.get()
    }
}
