"""Solves the integer programs on standard input with HiGHS: a JSON list of objects with
cost, rows, columns, values, lower and upper (of the rows), and bounds (of the variables).
Prints a JSON list of [objective, bound, seconds, optimal]."""
import json
import os
import sys
import time

import highspy
import numpy as np

# HiGHS prints a banner on standard output.
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
answers = []
for p in json.load(sys.stdin):
    h = highspy.Highs()
    h.setOptionValue("output_flag", False)
    h.setOptionValue("threads", 1)
    h.setOptionValue("time_limit", 60.0)
    h.setOptionValue("mip_rel_gap", 1e-6)
    lp = highspy.HighsLp()
    n, m = len(p["cost"]), len(p["lower"])
    lp.num_col_, lp.num_row_ = n, m
    lp.col_cost_ = np.array(p["cost"], float)
    lp.col_lower_ = np.zeros(n)
    lp.col_upper_ = np.array([highspy.kHighsInf if b < 0 else b for b in p["bounds"]], float)
    lp.row_lower_ = np.array([-highspy.kHighsInf if b is None else b for b in p["lower"]], float)
    lp.row_upper_ = np.array([highspy.kHighsInf if b is None else b for b in p["upper"]], float)
    rows, columns, values = (np.array(p[k]) for k in ("rows", "columns", "values"))
    order = np.argsort(columns, kind="stable")
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(columns[order], np.arange(n + 1)).astype(np.int32)
    lp.a_matrix_.index_ = rows[order].astype(np.int32)
    lp.a_matrix_.value_ = values[order].astype(float)
    lp.integrality_ = [highspy.HighsVarType.kInteger] * n
    h.passModel(lp)
    began = time.perf_counter()
    h.run()
    took = time.perf_counter() - began
    info = h.getInfo()
    optimal = h.getModelStatus() == highspy.HighsModelStatus.kOptimal
    answers.append([info.objective_function_value, info.mip_dual_bound, took, optimal])
json.dump(answers, out)
out.close()
