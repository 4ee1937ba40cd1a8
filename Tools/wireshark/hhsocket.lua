-- SPDX-License-Identifier: Apache-2.0
-- A dissector of HHSocket's protocol for Wireshark 4.0 and later: the formats `standard` and `plain`, on TCP and in WebSockets.
--
--     tshark -X lua_script:hhsocket.lua -o hhsocket.ports:7000 -i lo -Y hhsocket
--
-- In Wireshark: copy this file into the folder "Personal Lua Plugins" (About > Folders). The preferences of the protocol name the
-- servers' ports. Connections to other ports are recognised by their first frame, if that is a standard request with a right
-- checksum or hello, and WebSockets by their subprotocol. Docs/Protocol.md describes what is shown.
--
-- Bodies are shown by the dissectors that the table "hhsocket.type" has for their type, such as protobuf's:
--
--     DissectorTable.get("hhsocket.type"):add(1000, Dissector.get("protobuf"))

local hhsocket = Proto("hhsocket", "HHSocket")
local plain = Proto("hhsocket.plain", "HHSocket, plain format")
local bodies = DissectorTable.new("hhsocket.type", "HHSocket type", ftypes.UINT32, base.DEC, hhsocket)

-- Numbers of the protocol.

local HEARTBEAT, CANCEL, HELLO, GO_AWAY, CREDIT, ITEMS_END, ITEM = 0, 2, 3, 4, 6, 7, 8
local FIRST_APPLICATION_TYPE = 16
local METADATA, COMPRESSED, GOES_ON = 0x80000000, 0x40000000, 0x20000000
local FIRST_REQUEST_SERIAL = 50
local PUSH_SERIAL = 1
local PARTIAL = 206
-- The longest payload that is believed; longer ones are no frames of ours.
local MAXIMUM_LENGTH = 64 * 1024 * 1024
local MAXIMUM_HELLO_LENGTH = 128 * 1024

local statuses = {
    [0] = "ping",
    [200] = "ok",
    [206] = "partial",
    [300] = "serverLostConnection",
    [301] = "illegalLength",
    [302] = "lostPacket",
    [303] = "illegalFormat",
    [304] = "notModified",
    [401] = "undefinedType",
    [402] = "protobufFailed",
    [403] = "database",
    [404] = "unknown",
    [405] = "noPermission",
    [408] = "deadlineExceeded",
    [409] = "cancelledByServer",
    [456] = "emptyProtobuf",
    [503] = "overloaded",
    [504] = "draining",
}
local control_types = {
    [HEARTBEAT] = "heartbeat",
    [CANCEL] = "cancel",
    [HELLO] = "hello",
    [GO_AWAY] = "go-away",
    [CREDIT] = "credit",
    [ITEMS_END] = "end of items",
    [ITEM] = "item",
}

-- Fields.

local fields = {
    kind = ProtoField.string("hhsocket.kind", "Kind"),
    type = ProtoField.uint32("hhsocket.type", "Type", base.DEC, nil, nil, "Without flags"),
    metadata_flag = ProtoField.bool("hhsocket.flags.metadata", "Has metadata", 32, nil, METADATA),
    compressed_flag = ProtoField.bool("hhsocket.flags.compressed", "Is compressed", 32, nil, COMPRESSED),
    goes_on_flag = ProtoField.bool("hhsocket.flags.goes_on", "Goes on in the next frame", 32, nil, GOES_ON),
    serial = ProtoField.uint32("hhsocket.serial", "Serial"),
    status = ProtoField.uint32("hhsocket.status", "Status", base.DEC, statuses),
    length = ProtoField.uint32("hhsocket.length", "Length", base.DEC, nil, nil, "Of the payload, in bytes"),
    checksum = ProtoField.uint32("hhsocket.checksum", "Checksum", base.HEX, nil, nil, "adler32 of the payload"),
    checksum_good = ProtoField.bool("hhsocket.checksum.good", "Checksum is right"),
    body = ProtoField.bytes("hhsocket.body", "Body"),
    credit = ProtoField.uint64("hhsocket.credit", "Credit", base.DEC, nil, nil, "Since the beginning"),
    response_in = ProtoField.framenum("hhsocket.response_in", "Response in", base.NONE, frametype.RESPONSE),
    response_to = ProtoField.framenum("hhsocket.response_to", "Response to", base.NONE, frametype.REQUEST),
    time = ProtoField.relative_time("hhsocket.time", "Time since the request"),
    name = ProtoField.string("hhsocket.metadata.name", "Name"),
    value = ProtoField.string("hhsocket.metadata.value", "Value"),
    deadline = ProtoField.uint64("hhsocket.metadata.deadline", "Deadline", base.DEC, nil, nil, "In milliseconds"),
    idempotency_key = ProtoField.string("hhsocket.metadata.idempotency_key", "Idempotency key"),
    version = ProtoField.uint32("hhsocket.hello.version", "Version"),
    minimum_version = ProtoField.uint32("hhsocket.hello.minimum_version", "Oldest version"),
    feature = ProtoField.string("hhsocket.hello.feature", "Feature"),
    session_token = ProtoField.bytes("hhsocket.hello.session_token", "Session token"),
    stream_window = ProtoField.uint32("hhsocket.hello.stream_window", "Window of a stream"),
    connection_window = ProtoField.uint32("hhsocket.hello.connection_window", "Window of the connection"),
    maximum_streams = ProtoField.uint32("hhsocket.hello.maximum_streams", "Most open streams"),
    reason = ProtoField.string("hhsocket.go_away.reason", "Reason"),
    retry_after = ProtoField.uint32("hhsocket.go_away.retry_after", "Leave alone for", base.DEC, nil, nil, "In milliseconds"),
    endpoint = ProtoField.string("hhsocket.go_away.endpoint", "Other server"),
}
local all_fields = {}
for _, field in pairs(fields) do
    all_fields[#all_fields + 1] = field
end
hhsocket.fields = all_fields

local wrong_checksum = ProtoExpert.new(
    "hhsocket.checksum.bad", "The checksum is wrong", expert.group.CHECKSUM, expert.severity.ERROR)
local malformed = ProtoExpert.new(
    "hhsocket.malformed", "The payload is not what its type says", expert.group.MALFORMED, expert.severity.ERROR)
local failed = ProtoExpert.new("hhsocket.failed", "The call failed", expert.group.RESPONSE_CODE, expert.severity.NOTE)
hhsocket.experts = { wrong_checksum, malformed, failed }

-- Preferences.

hhsocket.prefs.ports = Pref.range("TCP ports", "", "The servers' ports, standard format", 65535)
hhsocket.prefs.plain_ports = Pref.range("TCP ports, plain format", "", "The servers' ports, plain format", 65535)
hhsocket.prefs.heuristics = Pref.bool("Recognise connections", true, "Look at connections to other ports as well")
hhsocket.prefs.checks = Pref.bool("Check checksums", true, "Compute the checksum of every frame")

-- Whether a port is in the text of a range, such as 7000,8000-8010.
local function contains(range, port)
    for first, last in string.gmatch(tostring(range), "(%d+)%-?(%d*)") do
        local low = tonumber(first)
        local high = tonumber(last) or low
        if port >= low and port <= high then
            return true
        end
    end
    return false
end

-- The checksum of bytes, without instructions on bits, which Lua's versions spell differently.
local function adler32(range)
    local bytes = range:bytes()
    local low, high = 1, 0
    for index = 0, bytes:len() - 1 do
        low = low + bytes:get_index(index)
        high = high + low
        -- Before the sum needs more bits than a number has.
        if index % 4096 == 4095 then
            low, high = low % 65521, high % 65521
        end
    end
    return (high % 65521) * 65536 + low % 65521
end

-- The messages of the protocol.

-- Calls `visit` with the number, the value and the range of each field of a protobuf message; a value is a number for varints,
-- and nil for bytes. Returns false if it is no message.
local function each_field(range, visit)
    local position = 0

    local function varint()
        local value, scale = 0, 1
        local start = position
        while position < range:len() and position - start < 10 do
            local byte = range(position, 1):uint()
            position = position + 1
            value = value + (byte % 128) * scale
            if byte < 128 then
                return value
            end
            scale = scale * 128
        end
        return nil
    end

    while position < range:len() do
        local tag = varint()
        if not tag then
            return false
        end
        local number, wire_type, start = math.floor(tag / 8), tag % 8, position
        local value, length
        if wire_type == 0 then
            value = varint()
            if not value then
                return false
            end
            length = position - start
        else
            length = wire_type == 1 and 8 or wire_type == 5 and 4 or nil
            if wire_type == 2 then
                length = varint()
                start = position
            end
            if not length or length > range:len() - start then
                return false
            end
            position = start + length
        end
        visit(number, value, length > 0 and range(start, length) or nil)
    end
    return true
end

local function text(range)
    return range and range:string(ENC_UTF_8) or ""
end

local function add_metadata(range, tree)
    local subtree = tree:add(hhsocket, range, "Metadata")
    local is_message = each_field(range, function(number, value, field)
        if number == 1 and field then
            local name, entry, value_range = "", "", field
            each_field(field, function(key, _, part)
                if key == 1 then
                    name = text(part)
                elseif key == 2 then
                    entry, value_range = text(part), part or field
                end
            end)
            local item = subtree:add(fields.name, field, name)
            item:add(fields.value, value_range, entry)
            item:append_text(" = " .. entry)
        elseif number == 2 and value then
            subtree:add(fields.deadline, field, UInt64.new(value % 4294967296, math.floor(value / 4294967296)))
        elseif number == 3 then
            subtree:add(fields.idempotency_key, field or range, text(field))
        end
    end)
    if not is_message then
        subtree:add_proto_expert_info(malformed)
    end
end

local function add_hello(range, tree, is_reply)
    local numbers = is_reply and { [1] = "version", [4] = "stream_window", [5] = "connection_window", [6] = "maximum_streams" }
        or { [1] = "version", [5] = "minimum_version", [6] = "stream_window", [7] = "connection_window" }
    local features = {}
    local is_message = each_field(range, function(number, value, field)
        if number == 2 then
            features[#features + 1] = text(field)
            tree:add(fields.feature, field or range, text(field))
        elseif number == 3 and not is_reply and field then
            tree:add(fields.session_token, field)
        elseif numbers[number] and value then
            tree:add(fields[numbers[number]], field, value)
        end
    end)
    if not is_message then
        tree:add_proto_expert_info(malformed)
    end
    return table.concat(features, ",")
end

local function add_go_away(range, tree)
    local reason = ""
    local is_message = each_field(range, function(number, value, field)
        if number == 1 then
            reason = text(field)
            tree:add(fields.reason, field or range, reason)
        elseif number == 2 and value then
            tree:add(fields.retry_after, field, value)
        elseif number == 3 then
            tree:add(fields.endpoint, field or range, text(field))
        end
    end)
    if not is_message then
        tree:add_proto_expert_info(malformed)
    end
    return reason
end

-- Connections.

local tcp_stream = Field.new("tcp.stream")
local websocket_mask = Field.new("websocket.mask")

-- By the connection: the side that is the server, requests by their serial, and the requests of responses by their place.
local connections = {}

function hhsocket.init()
    connections = {}
end

local function connection_of()
    local stream = tcp_stream()
    local number = stream and stream.value or -1
    local found = connections[number]
    if not found then
        found = { requests = {}, requests_of = {}, responses_of = {}, rests = {}, kinds = {} }
        connections[number] = found
    end
    return found
end

-- Notes requests and responses the first time, and shows them each time.
local function match(connection, frame, place, pinfo, tree)
    if frame.is_request then
        if not pinfo.visited then
            connection.requests[frame.serial] = { number = pinfo.number, time = pinfo.abs_ts, place = place }
        end
        local response = connection.responses_of[place]
        if response then
            tree:add(fields.response_in, response):set_generated()
        end
    elseif frame.is_response then
        if not pinfo.visited then
            local request = connection.requests[frame.serial]
            if request then
                connection.requests_of[place] = request
                connection.responses_of[request.place] = pinfo.number
                if frame.status ~= PARTIAL and not frame.goes_on then
                    connection.requests[frame.serial] = nil
                end
            end
        end
        local request = connection.requests_of[place]
        if request then
            tree:add(fields.response_to, request.number):set_generated()
            local seconds = pinfo.abs_ts - request.time
            local whole = math.floor(seconds)
            tree:add(fields.time, NSTime.new(whole, math.floor((seconds - whole) * 1e9))):set_generated()
        end
    end
end

-- Frames.

local function header_length(to_server)
    return to_server and 12 or 16
end

-- The length of the frame that begins here, of which the header is there.
local function frame_length(tvb, offset, to_server, has_checksum)
    local header = header_length(to_server)
    return header + tvb(offset + header - 4, 4):uint() + (has_checksum and 4 or 0)
end

-- The kind of a frame, as it is shown.
local function name_kind(frame, to_server)
    if frame.type >= FIRST_APPLICATION_TYPE then
        if to_server then
            frame.is_request = true
            return "request"
        elseif frame.serial == PUSH_SERIAL then
            return "push"
        end
        frame.is_response = frame.serial >= FIRST_REQUEST_SERIAL
        return frame.status == PARTIAL and "item" or "response"
    elseif frame.type == HEARTBEAT then
        if to_server then
            return frame.serial == 0 and "ping" or "pong"
        end
        return frame.status == 0 and "ping" or "pong"
    elseif frame.type == HELLO then
        return to_server and "hello" or "hello reply"
    end
    return control_types[frame.type] or "control"
end

local function add_body(frame, range, pinfo, tree, root)
    local body = range
    if frame.is_compressed then
        local found, inflated = pcall(function()
            return range:uncompress("Body")
        end)
        if found and inflated then
            body = inflated:range()
        end
    end
    tree:add(fields.body, body)
    -- The rest of a payload that was cut is in other frames.
    if not frame.goes_on and not frame.is_continuation and frame.type >= FIRST_APPLICATION_TYPE then
        bodies:try(frame.type, body:tvb(), pinfo, root)
    end
end

local function add_payload(frame, payload, to_server, pinfo, tree, root)
    if frame.type == HELLO then
        local features = add_hello(payload, tree, not to_server)
        return features ~= "" and " " .. features or ""
    elseif frame.type == GO_AWAY and not to_server then
        return " " .. add_go_away(payload, tree)
    elseif frame.type == CREDIT then
        if payload:len() ~= 8 then
            tree:add_proto_expert_info(malformed)
            return ""
        end
        tree:add(fields.credit, payload)
        return " " .. tostring(payload:uint64())
    end
    local body = payload
    if frame.has_metadata and not frame.is_continuation then
        local length = payload:len() >= 4 and payload(0, 4):uint() or nil
        if not length or length > payload:len() - 4 then
            -- It may go on in the next frame.
            if not frame.goes_on then
                tree:add_proto_expert_info(malformed)
            end
            return ""
        end
        if length > 0 then
            add_metadata(payload(4, length), tree)
        end
        body = payload:len() > 4 + length and payload(4 + length) or nil
    end
    if body then
        add_body(frame, body, pinfo, tree, root)
    end
    return ""
end

-- Shows one whole frame.
local function dissect_frame(tvb, pinfo, root, to_server, has_checksum, connection, place)
    local header = header_length(to_server)
    local word, length = tvb(0, 4):uint(), tvb(header - 4, 4):uint()
    local frame = {
        type = word % GOES_ON,
        serial = tvb(4, 4):uint(),
        status = not to_server and tvb(8, 4):uint() or nil,
        has_metadata = math.floor(word / METADATA) % 2 == 1,
        is_compressed = math.floor(word / COMPRESSED) % 2 == 1,
        goes_on = math.floor(word / GOES_ON) % 2 == 1,
    }
    local kind = name_kind(frame, to_server)
    -- Whether it goes on with the payload of the frame of its serial before it.
    local key = (to_server and "up " or "down ") .. frame.serial
    if not pinfo.visited then
        connection.kinds[place] = connection.kinds[key] or false
        connection.kinds[key] = frame.goes_on
    end
    frame.is_continuation = connection.kinds[place]

    local tree = root:add(hhsocket, tvb())
    tree:append_text(", " .. kind)
    tree:add(fields.kind, kind):set_generated()
    local type_item = tree:add(fields.type, tvb(0, 4), frame.type)
    if control_types[frame.type] then
        type_item:append_text(" (" .. control_types[frame.type] .. ")")
    end
    tree:add(fields.metadata_flag, tvb(0, 4))
    tree:add(fields.compressed_flag, tvb(0, 4))
    tree:add(fields.goes_on_flag, tvb(0, 4))
    tree:add(fields.serial, tvb(4, 4))
    local summary = kind
    if frame.type >= FIRST_APPLICATION_TYPE then
        summary = summary .. " " .. frame.type
    end
    if frame.serial >= FIRST_REQUEST_SERIAL then
        summary = summary .. " #" .. frame.serial
    end
    if frame.status then
        local item = tree:add(fields.status, tvb(8, 4))
        local is_failure = frame.status ~= 200 and frame.status ~= PARTIAL and frame.type ~= HEARTBEAT
        if is_failure then
            item:add_proto_expert_info(failed)
            summary = summary .. " " .. frame.status .. " " .. (statuses[frame.status] or "")
        end
    end
    tree:add(fields.length, tvb(header - 4, 4))
    match(connection, frame, place, pinfo, tree)
    if length > 0 then
        summary = summary .. add_payload(frame, tvb(header, length), to_server, pinfo, tree, root)
    end
    if has_checksum then
        local sum = tvb(header + length, 4)
        local item = tree:add(fields.checksum, sum)
        if hhsocket.prefs.checks then
            local is_right = length == 0 and sum:uint() == 1 or length > 0 and adler32(tvb(header, length)) == sum:uint()
            item:add(fields.checksum_good, sum, is_right):set_generated()
            if not is_right then
                item:add_proto_expert_info(wrong_checksum)
                summary = summary .. " [wrong checksum]"
            end
        end
    end
    return summary
end

-- Adds to the line of a packet, which may have frames in several segments or messages.
local function summarise(pinfo, summary)
    local before = pinfo.private["hhsocket"]
    local all = before and before .. " | " .. summary or summary
    pinfo.private["hhsocket"] = all
    pinfo.cols.protocol = "HHSocket"
    -- That of the segment before it, or of the message.
    pinfo.cols.info:clear_fence()
    pinfo.cols.info:set(all)
end

-- Shows the frames of a buffer. Returns the number of bytes that are no whole frame, and how many more are needed at least, or nil
-- if they are not known.
local function dissect_frames(tvb, pinfo, root, to_server, has_checksum, connection, name)
    local header = header_length(to_server)
    local offset, summaries = 0, {}
    local needed
    while tvb:len() - offset >= header do
        local length = frame_length(tvb, offset, to_server, has_checksum)
        if length > MAXIMUM_LENGTH then
            root:add(hhsocket, tvb(offset), "HHSocket, no frame: its length would be " .. length)
            summaries[#summaries + 1] = "[no frame]"
            offset = tvb:len()
            break
        end
        if tvb:len() - offset < length then
            needed = length - (tvb:len() - offset)
            break
        end
        local place = name .. ":" .. offset
        summaries[#summaries + 1] = dissect_frame(
            tvb(offset, length):tvb(), pinfo, root, to_server, has_checksum, connection, place)
        offset = offset + length
    end
    if #summaries > 0 then
        summarise(pinfo, table.concat(summaries, " | "))
    end
    return tvb:len() - offset, needed
end

-- TCP.

local function dissect_tcp(tvb, pinfo, root, to_server, has_checksum)
    -- A capture that does not have all of a packet.
    if tvb:len() ~= tvb:reported_len() then
        return 0
    end
    local connection = connection_of()
    local rest, needed = dissect_frames(tvb, pinfo, root, to_server, has_checksum, connection, tostring(pinfo.number))
    if rest > 0 then
        pinfo.desegment_offset = tvb:len() - rest
        pinfo.desegment_len = needed or DESEGMENT_ONE_MORE_SEGMENT
    end
    return tvb:len()
end

local dissect_message

-- What the preferences say of the servers of a format.
local function ports_of(has_checksum)
    return has_checksum and hhsocket.prefs.ports or hhsocket.prefs.plain_ports
end

-- Whether a packet goes to the server: as the connection was recognised, as the preferences say, or, after "Decode as", to the
-- lower port.
local function is_to_server(pinfo, ports)
    local client_port = connection_of().client_port
    if client_port then
        return pinfo.src_port == client_port
    elseif contains(ports, pinfo.dst_port) then
        return true
    end
    return not contains(ports, pinfo.src_port) and pinfo.dst_port < pinfo.src_port
end

local function dissect(tvb, pinfo, root, has_checksum)
    if websocket_mask() then
        return dissect_message(tvb, pinfo, root, has_checksum)
    end
    return dissect_tcp(tvb, pinfo, root, is_to_server(pinfo, ports_of(has_checksum)), has_checksum)
end

function hhsocket.dissector(tvb, pinfo, root)
    return dissect(tvb, pinfo, root, true)
end

function plain.dissector(tvb, pinfo, root)
    return dissect(tvb, pinfo, root, false)
end

-- The first bytes of a client: a hello, or a request or a ping whose checksum is right.
local function recognise(tvb, pinfo, root)
    if not hhsocket.prefs.heuristics or tvb:len() < 12 then
        return false
    end
    local word, serial, length = tvb(0, 4):uint(), tvb(4, 4):uint(), tvb(8, 4):uint()
    local is_hello = word == HELLO and serial == HELLO and length <= MAXIMUM_HELLO_LENGTH
    local is_request = word >= FIRST_APPLICATION_TYPE and word < GOES_ON and serial >= FIRST_REQUEST_SERIAL
    local is_ping = word == HEARTBEAT and serial == 0 and length == 0
    if not (is_hello or is_request or is_ping) or length > MAXIMUM_LENGTH then
        return false
    end
    -- A hello alone, whole, says whether a checksum follows.
    local has_checksum = tvb:len() >= 16 + length
    if has_checksum then
        local sum = tvb(12 + length, 4):uint()
        local is_right = length == 0 and sum == 1 or length > 0 and adler32(tvb(12, length)) == sum
        if not is_right then
            return false
        end
    elseif not (is_hello and length > 0 and tvb:len() == 12 + length) then
        return false
    end
    local proto = has_checksum and hhsocket or plain
    connection_of().client_port = pinfo.src_port
    pinfo.conversation = proto
    proto.dissector(tvb, pinfo, root)
    return true
end

-- WebSockets: the payloads of messages are a sequence of bytes, and where one ends means nothing. Wireshark puts no messages
-- together, so that is done here.

local last_number, message_count = -1, 0

function dissect_message(tvb, pinfo, root, has_checksum)
    if pinfo.number ~= last_number then
        last_number, message_count = pinfo.number, 0
    end
    message_count = message_count + 1
    local name = pinfo.number .. "." .. message_count
    local connection = connection_of()
    -- Clients mask their messages, and servers do not.
    local mask = websocket_mask()
    local to_server = mask ~= nil and mask.value
    local way = to_server and "up" or "down"
    if not pinfo.visited then
        connection.rests[name] = connection.rests[way]
    end
    local all = tvb
    local rest_before = connection.rests[name]
    if rest_before then
        local bytes = ByteArray.new() .. rest_before
        bytes:append(tvb:range():bytes())
        all = bytes:tvb("HHSocket")
    end
    local rest = dissect_frames(all, pinfo, root, to_server, has_checksum, connection, name)
    if not pinfo.visited then
        connection.rests[way] = rest > 0 and all:range(all:len() - rest):bytes() or nil
    end
    if rest == all:len() and not pinfo.private["hhsocket"] then
        pinfo.cols.protocol = "HHSocket"
        pinfo.cols.info:clear_fence()
        pinfo.cols.info:set("a part of a frame")
    end
    return tvb:len()
end

hhsocket:register_heuristic("tcp", recognise)
local tcp_ports = DissectorTable.get("tcp.port")
tcp_ports:add_for_decode_as(hhsocket)
tcp_ports:add_for_decode_as(plain)
local subprotocols = DissectorTable.get("ws.protocol")
subprotocols:add("hhsocket.1", hhsocket)
subprotocols:add("hhsocket.1.plain", plain)

-- The ports for which each format was registered last.
local registered = { [hhsocket] = "", [plain] = "" }

local function register(proto, has_checksum)
    if registered[proto] ~= "" then
        tcp_ports:remove(registered[proto], proto)
    end
    registered[proto] = tostring(ports_of(has_checksum))
    if registered[proto] ~= "" then
        tcp_ports:add(registered[proto], proto)
    end
end

function hhsocket.prefs_changed()
    register(hhsocket, true)
    register(plain, false)
end
